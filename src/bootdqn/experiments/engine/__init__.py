"""The engine that carries out sweeps: in this process, in worker processes, or on a Ray cluster."""

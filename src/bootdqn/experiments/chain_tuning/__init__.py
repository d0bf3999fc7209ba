"""How the hyperparameters of the chain experiments were chosen: the same grid for every agent."""

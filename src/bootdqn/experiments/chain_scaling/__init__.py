"""Time to learn against the length of the chain (paper, figure "Only Bootstrapped DQN demonstrates deep exploration")."""

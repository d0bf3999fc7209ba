"""The control: the same chains with the meaning of the actions drawn for every state, so that luck cannot generalise."""

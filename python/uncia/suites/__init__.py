"""Studies that run experiments of their own and conclude from them, one module each."""

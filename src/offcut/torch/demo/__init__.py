"""The training scripts of `offcut demo`: real data that ships with the dependencies, seconds to minutes each."""

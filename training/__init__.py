"""The training room: where the networks that this package ships are made. Not installed on a robot."""

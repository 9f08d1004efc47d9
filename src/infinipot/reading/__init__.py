"""The loop that reads and answers: plans, sessions, sequences, and the words of an answer."""

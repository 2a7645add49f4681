"""Updates sent through the pipe."""

import pickle


def through(update):
    return pickle.loads(pickle.dumps(update))

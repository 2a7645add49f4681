"""Updates sent through the pipe."""

import io

from webhook.state.pipe import read_update, write_update


def through(update):
    stream = io.BytesIO()
    write_update(stream, update)
    stream.seek(0)
    return read_update(stream)

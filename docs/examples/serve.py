"""Serve a SavedModel's ``predict`` as JSON over HTTP, from Python's standard library."""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import tensorflow as tf


def make_server(path: str, port: int = 8000) -> ThreadingHTTPServer:
    """
    A server on this machine that answers ``POST /predict``.

    :param path: of a SavedModel with a function ``predict`` from inputs [N, D] to mean and variance.
    :param port: 0 for any that is free.
    """
    model = tf.saved_model.load(path)
    spec = model.predict.concrete_functions[0].structured_input_signature[0][0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path != "/predict":
                return self.answer(404, {"error": "expected /predict"})
            try:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "inputs" not in request:
                    raise ValueError("expected rows under this name, got none")
                inputs = np.array(request["inputs"], dtype=spec.dtype.as_numpy_dtype)
                if not spec.shape.is_compatible_with(inputs.shape) or not np.isfinite(inputs).all():
                    raise ValueError(f"expected finite {spec.shape}, got shape {inputs.shape}")
                mean, variance = model.predict(tf.constant(inputs))
            except (TypeError, ValueError) as error:
                return self.answer(400, {"error": f"inputs: {error}"})
            self.answer(200, {"mean": mean.numpy().tolist(), "variance": variance.numpy().tolist()})

        def answer(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass  # no line for every request

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    make_server(options.path, options.port).serve_forever()

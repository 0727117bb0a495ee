"""`python -m books.sandbox.model`: serves the model until SIGTERM or SIGINT, which end it at once.

`--ready-file` appears, with the base URL in it, when the server listens. The night, if one is played, comes from the
settings' environment like in every other process.
"""

from __future__ import annotations

from books.sandbox import serving
from books.sandbox.model.server import Model
from books.sandbox.model.weather import Weather


def main() -> None:
    parser = serving.parser("books.sandbox.model", "A seeded language model.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key", default="sandbox", help="the only key that is let in")
    arguments = parser.parse_args()
    serving.set_clock()
    model = Model(arguments.key, Weather(arguments.seed), serving.Journal(arguments.log))
    serving.serve(model.app(), arguments.port, arguments.ready_file, "sandbox model")


if __name__ == "__main__":
    main()

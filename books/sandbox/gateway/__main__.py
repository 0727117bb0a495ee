"""`python -m books.sandbox.gateway`: serves authority and payment gateway until SIGTERM or SIGINT end it at once.

`--ready-file` appears, with the base URL in it, when the server listens. With a `--log` that is there already, what it
says was taken is remembered. The night, if one is played, comes from the settings' environment like in every other
process.
"""

from __future__ import annotations

from datetime import timedelta

from books.sandbox import serving
from books.sandbox.gateway.server import Gateway, taken_before
from books.sandbox.gateway.weather import Weather


def main() -> None:
    parser = serving.parser("books.sandbox.gateway", "A seeded tax authority and payment gateway.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--key", default="sandbox", help="the only key that is let in")
    parser.add_argument("--late", type=float, default=90.0, help="night seconds that a late answer takes")
    parser.add_argument("--calm", action="store_true", help="no faults but those that are asked for")
    arguments = parser.parse_args()
    serving.set_clock()
    weather = Weather(arguments.seed, timedelta(seconds=arguments.late), calm=arguments.calm)
    before = taken_before(arguments.log)
    gateway = Gateway(arguments.key, weather, serving.Journal(arguments.log), before)
    serving.serve(gateway.app(), arguments.port, arguments.ready_file, "sandbox gateway")


if __name__ == "__main__":
    main()

from datetime import timedelta

from fleet import Budget, queue

greetings = queue("greetings")


@greetings.actor(budget=Budget(timedelta(seconds=5), timedelta(seconds=9), because="prints one line to a terminal"))
def greet(name: str = "night") -> None:
    print(f"Good evening, {name}.", flush=True)

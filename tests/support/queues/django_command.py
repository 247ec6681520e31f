"""A project of Django with one management command, which cron starts on each machine.

``python -m support.queues.django_command nightly 0``.
"""

from __future__ import annotations

import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import BaseCommand, call_command
from support.queues.jobs import PERIOD, client, nightly, work


class Command(BaseCommand):
    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("number", type=int)

    @client.single_run(lambda self, *args, number, **options: nightly(number), once_per=PERIOD)
    def handle(self, *args: Any, number: int, **options: Any) -> str:
        work("nightly")
        return "done"


def main() -> None:
    settings.configure()
    django.setup()
    call_command(Command(), *sys.argv[1:])


if __name__ == "__main__":
    main()

"""URLs of Sentinels, and which of them is asked."""

from __future__ import annotations

import pytest

from redlock_fast.masters.sentinel import Discovery, NamedMaster, Service, Unknown, parse_sentinel_url

SENTINELS = (("a", 26379), ("b", 7000), ("c", 26379))


def test_the_parts_of_a_url() -> None:
    url = "rediss+sentinel://user:pass@a,b:7000,c/my%20locks/3?sentinel_password=secret&timeout=1"
    service = parse_sentinel_url(url)
    assert (service.name, service.sentinels) == ("my locks", SENTINELS)
    assert service.url == "rediss://user:pass@localhost/3?timeout=1"
    assert service.login == {"password": "secret"}
    assert str(service) == "my locks@a:26379"
    assert "secret" not in repr(service)
    assert "pass" not in repr(service)


@pytest.mark.parametrize(
    "rest", ["", "a", "a/", "/locks", "a/locks/db", "a/locks/\N{SUPERSCRIPT TWO}", "a,/locks", "a/locks#x"]
)
def test_a_url_with_a_missing_part(rest: str) -> None:
    with pytest.raises(ValueError, match=r"it needs the address|an address is empty"):
        parse_sentinel_url(f"redis+sentinel://{rest}")


class Asked(Discovery):
    """Sentinels of which only ``knows`` has the master."""

    def __init__(self, knows: str) -> None:
        super().__init__(Service("locks", SENTINELS, "", {}), object, {})
        self.knows = knows
        self.asked: list[str] = []

    def _ask(self, host: str, port: int, timeout: float) -> NamedMaster:
        self.asked.append(host)
        if host == self.knows:
            return NamedMaster("master", 6379)
        raise Unknown("no such service")


def test_each_query_begins_with_the_next_sentinel() -> None:
    discovery = Asked("c")
    assert [discovery.master(1.0) for _ in range(4)] == [("master", 6379, False)] * 4
    assert "".join(discovery.asked) == "abc" + "bc" + "c" + "abc"


def test_no_sentinel_knows() -> None:
    with pytest.raises(Unknown, match=r"'locks': a:26379: no such service; b:7000: .*; c:26379: ") as error:
        Asked("").master(1.0)
    assert "no Sentinel has a master" in str(error.value)

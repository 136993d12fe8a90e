import pytest

from xcore.errors import ConfigError
from xcore.names import checked_name


@pytest.mark.parametrize("name", ["demo", "eurlex57k", "My laws 2.0", "größe", "法律", "a-b_c.d", "7"])
def test_usual_names_are_taken(name: str) -> None:
    assert checked_name(name) == name


ESCAPES = ["../../x", "..", ".hidden", "a/b", "a\\b", "/etc", "~", "a\0b", "%2e%2e"]
QUERIES = ["a'b", 'a"b', "a:b", "a\nb", "a*", "a?"]
ODD = ["", "-rf", " starts", "ends ", "ends.", "x " * 60]


@pytest.mark.parametrize("name", [*ESCAPES, *QUERIES, *ODD])
def test_a_name_that_could_leave_its_folder_or_its_query_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be a name.*expected at most 100 letters, digits.*Choose another"):
        checked_name(name)

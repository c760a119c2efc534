"""The app of the page: every process hears of accounts that go. Only its name is another."""

from .settings import APP, PAGE

NAME = 'name = "tests.oauth.third.project"; label = "third"'
exec(compile(APP.replace('name = "accounts"', NAME), str(PAGE), "exec", dont_inherit=True))

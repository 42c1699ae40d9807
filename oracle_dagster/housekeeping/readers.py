"""Read-only roles: they may read every table and view of the domain, those to come as well, and nothing else.

Whose they are is told by the default privileges of the database, so that also a role which an administrator
created is recognised.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
CONNECTIONS: Final = 10
SCHEMA: Final = "public"
_READERS: Final = """
    SELECT r.rolname, r.rolcanlogin, r.rolconnlimit
    FROM pg_default_acl d
    CROSS JOIN LATERAL aclexplode(d.defaclacl) AS granted
    JOIN pg_roles r ON r.oid = granted.grantee
    WHERE d.defaclobjtype = 'r' AND granted.privilege_type = 'SELECT' AND r.rolname <> current_user
      AND d.defaclnamespace = %s::regnamespace
    GROUP BY 1, 2, 3 ORDER BY 1"""


class ReaderError(RuntimeError):
    """A read-only role cannot be made or removed; the message names place, reason and remedy."""


@dataclass(frozen=True)
class Reader:
    """A read-only role of this database; ``connections`` is how many it may open at once (-1: any number)."""

    name: str
    can_log_in: bool
    connections: int


def readers(connection: psycopg.Connection) -> list[Reader]:
    """The read-only roles by name."""
    return [Reader(*row) for row in connection.execute(_READERS, [SCHEMA]).fetchall()]


def create(url: str, name: str, *, with_password: bool) -> str | None:
    """Make a read-only role, or complete one that exists; safe to repeat.

    Args:
        url: libpq address of the domain database, as the owner of its tables.
        name: of the role.
        with_password: whether to give it a new password; not needed on the embedded server's socket.

    Returns:
        The password, which is stored nowhere; None without one.

    Raises:
        ReaderError: the name or the role cannot be used, or the server does not allow it.

    """
    if NAME.fullmatch(name) is None or name.startswith("pg_"):
        raise ReaderError(
            f"{name!r} cannot name a role; use small letters, digits and _, at most 63, not beginning with "
            "a digit or pg_."
        )
    password = secrets.token_urlsafe(24) if with_password else None
    role = sql.Identifier(name)
    try:
        with psycopg.connect(url) as connection:
            _refuse_mighty(connection, name)
            options = sql.SQL("LOGIN CONNECTION LIMIT {}").format(sql.Literal(CONNECTIONS))
            if password is not None:
                # Hashed here, so that it stands in no log of the server.
                hashed = connection.pgconn.encrypt_password(
                    password.encode(), name.encode(), b"scram-sha-256"
                )
                options = sql.SQL("{} PASSWORD {}").format(options, sql.Literal(hashed.decode()))
            known = (
                connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is not None
            )
            verb = sql.SQL("ALTER ROLE {} {}" if known else "CREATE ROLE {} {}")
            connection.execute(verb.format(role, options))
            connection.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(role))
            for statement in _grants(connection, role):
                connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ReaderError(
            f"The role {name!r} cannot be made: {error.diag.message_primary}. Let an administrator run "
            f"CREATE ROLE {name} LOGIN PASSWORD '…'; or grant this account CREATEROLE; then run this again."
        ) from None
    except psycopg.Error as error:
        raise ReaderError(f"The role {name!r} cannot be made: {_said(error)}.") from None
    return password


def drop(url: str, name: str) -> None:
    """Remove a read-only role and whatever was granted to it here.

    Raises:
        ReaderError: there is no such reader, or the server does not allow it.

    """
    role = sql.Identifier(name)
    try:
        with psycopg.connect(url) as connection:
            there = [reader.name for reader in readers(connection)]
            if name not in there:
                raise ReaderError(
                    f"There is no reader {name!r} in this database; there are: {', '.join(there) or 'none'}."
                )
            for statement in _grants(connection, role, revoke=True):
                connection.execute(statement)
            connection.execute(sql.SQL("DROP ROLE {}").format(role))
    except psycopg.Error as error:
        raise ReaderError(
            f"The role {name!r} cannot be removed: {_said(error)}. Remove what it owns or was granted "
            "elsewhere "
            "first."
        ) from None


def _refuse_mighty(connection: psycopg.Connection, name: str) -> None:
    """A role that may write anyway is not made a reader by granting it to read."""
    row = connection.execute(
        """SELECT rolsuper OR rolcreaterole OR rolname = current_user
               OR EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid)
               OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)
           FROM pg_roles r WHERE rolname = %s""",
        [name],
    ).fetchone()
    if row is not None and row[0]:
        raise ReaderError(
            f"The role {name!r} exists and may do more than read (it is an administrator, owns tables "
            "or belongs "
            "to a group). Choose another name."
        )


def _grants(
    connection: psycopg.Connection, role: sql.Identifier, *, revoke: bool = False
) -> list[sql.Composed]:
    schema, database = sql.Identifier(SCHEMA), sql.Identifier(connection.info.dbname)
    verb, to = (sql.SQL("REVOKE"), sql.SQL("FROM")) if revoke else (sql.SQL("GRANT"), sql.SQL("TO"))
    found = [
        sql.SQL("{} CONNECT ON DATABASE {} {} {}").format(verb, database, to, role),
        sql.SQL("{} USAGE ON SCHEMA {} {} {}").format(verb, schema, to, role),
        sql.SQL("{} SELECT ON ALL TABLES IN SCHEMA {} {} {}").format(verb, schema, to, role),
        sql.SQL("ALTER DEFAULT PRIVILEGES IN SCHEMA {} {} SELECT ON TABLES {} {}").format(
            schema, verb, to, role
        ),
    ]
    if not revoke:
        # Temporary tables are the one thing that everybody may write; owner and administrators still may.
        found.append(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
    return found


def address(url: str, name: str, password: str | None) -> str:
    """The libpq address of the database for a reader."""
    from oracle_dagster.home import address_of

    parameters = {key: str(value) for key, value in conninfo_to_dict(url).items() if value is not None}
    parameters.pop("password", None)
    parameters["user"] = name
    if password is not None:
        parameters["password"] = password
    return address_of(parameters)


def _said(error: psycopg.Error) -> str:
    return " ".join(str(error.diag.message_primary or error).split()).rstrip(".")

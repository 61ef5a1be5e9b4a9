"""An SMTP server in the test process."""

import email
import email.policy

from fakes.servers import free_port


class Mailbox:
    """Accepts and stores mail from clients with its user and password.

    Args:
        user: User of the login.
        password: Password of the login.
    """

    def __init__(self, user, password):
        from aiosmtpd.controller import Controller
        from aiosmtpd.smtp import AuthResult

        self.port = free_port()
        self.messages = []

        def authenticate(_server, _session, _envelope, _mechanism, login):
            right = (login.login, login.password) == (user.encode(), password.encode())
            return AuthResult(success=right, handled=False)

        self._controller = Controller(
            self,
            hostname="127.0.0.1",
            port=self.port,
            authenticator=authenticate,
            auth_require_tls=False,
        )

    async def handle_DATA(self, _server, session, envelope):  # noqa: N802 - the library's name
        if not session.authenticated:
            return "530 log in first"
        self.messages.append(
            email.message_from_bytes(envelope.content, policy=email.policy.default)
        )
        return "250 taken"

    def __enter__(self):
        self._controller.start()
        return self

    def __exit__(self, *_):
        self._controller.stop()

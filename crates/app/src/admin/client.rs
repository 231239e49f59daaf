//! The other side of the admin API, for commands that ask a running server.

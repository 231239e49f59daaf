//! The admin side of a whole server, with raw requests: who is refused, and that no answer has a
//! secret in it.

use crate::servers::{Answer, Servers, ask, get};

/// Both endpoints have secrets: in a header, by reference, and in what the upstream is called by.
const SECRETS: &str = "
[pool.secret]
endpoints = [
  { name = \"a\", url = \"https://a.example.com/v1\", headers = { authorization = \"file:SECRET\" } },
]
[client.app]
token = \"file:SECRET\"
";

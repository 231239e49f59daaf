//! The commands as seen from outside: exit code, stdout and stderr of the real binary.

mod bad_input;
mod completions;
mod replay;
mod streams;
mod support;
mod usage;

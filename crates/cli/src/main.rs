//! The command `tidegate`.
fn main() {}

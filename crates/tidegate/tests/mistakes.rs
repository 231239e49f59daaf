//! Common mistakes get an error that says what to do. Each file of `mistakes/` is compiled, and the
//! message is compared with the file beside it. After a change: `TRYBUILD=overwrite`, and read them.

#![cfg(all(feature = "reqwest", feature = "tower"))]

#[test]
fn mistakes_get_a_helpful_error() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}

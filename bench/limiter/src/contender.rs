//! What all contenders have in common: they let an attempt through and hear that it went well.

/// Something that stands in front of a request.
pub(crate) trait Contender: Sync {
    /// Asks for one attempt with this key, and says at once that it succeeded. `false` if it was
    /// not let through.
    #[expect(
        clippy::ptr_arg,
        reason = "governor takes a reference to its own type of keys"
    )]
    fn attempt(&self, key: &String) -> bool;
}

/// Makes every key known, so that only the visits after it are measured.
pub(crate) fn warm_up(contender: &impl Contender, walk: &[String]) {
    for key in walk {
        assert!(contender.attempt(key), "no attempt is refused");
    }
}

//! The reference of the admin API, as a page of Markdown.

/// The page.
pub fn reference() -> String {
    String::new()
}

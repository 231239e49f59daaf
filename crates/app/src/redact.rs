//! What may be shown of URLs, headers, bodies and of what servers say.
//!
//! Logs, metrics, error texts and consoles are read by more people than may know a secret. Each of
//! these types wraps something that may hold one and has one `Display`, which replaces what may be
//! secret by `…`. What could be a secret is taken for one.
//!
//! Everything shown is one line of at most [`MAX_SHOWN`] characters without control characters. The
//! work is bounded by the length of the text.

use std::fmt::{self, Write};

mod text;
mod url;

/// The longest text that is shown, in characters.
pub const MAX_SHOWN: usize = 200;

/// A URL, or the path and query of one: without user info and fragment, and with no values in its
/// query.
///
/// ```
/// use app::redact::Url;
///
/// let url = Url::new("https://me:pw@api.example.com/v1/search?q=ann&key=k-123#top");
/// assert_eq!(url.to_string(), "https://api.example.com/v1/search?q=…&key=…");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Url<'a>(&'a str);

/// A header with its value, which is left out if its name says that it holds a secret.
///
/// ```
/// use app::redact::Header;
///
/// assert_eq!(Header::new("X-Api-Key", b"k-123").to_string(), "X-Api-Key: …");
/// assert_eq!(Header::new("Accept", b"text/html").to_string(), "Accept: text/html");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    name: &'a str,
    value: &'a [u8],
}

/// What a server says, in an error for instance: without what looks like a key, a token or an
/// address of a person, for servers like to repeat what they were sent.
///
/// ```
/// use app::redact::Text;
///
/// let said = Text::new("Incorrect API key provided: sk-12345678. Ask ann@example.com");
/// assert_eq!(said.to_string(), "Incorrect API key provided: sk-… Ask …");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(&'a str);

/// A body: only how long it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Body<'a>(&'a [u8]);

impl<'a> Url<'a> {
    /// Wraps a URL, or what takes the place of one in a request.
    pub const fn new(url: &'a str) -> Self {
        Self(url)
    }
}

impl<'a> Header<'a> {
    /// Wraps a header.
    pub const fn new(name: &'a str, value: &'a [u8]) -> Self {
        Self { name, value }
    }
}

impl<'a> Text<'a> {
    /// Wraps text of a server.
    pub const fn new(text: &'a str) -> Self {
        Self(text)
    }
}

impl<'a> Body<'a> {
    /// Wraps a body.
    pub const fn new(body: &'a [u8]) -> Self {
        Self(body)
    }
}

impl fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = Shown::default();
        url::show(self.0, &mut shown);
        f.write_str(&shown.text)
    }
}

impl fmt::Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = Shown::default();
        shown.push_str(self.name);
        shown.push_str(": ");
        match std::str::from_utf8(self.value) {
            Ok(value) if !text::names_secret(self.name) => text::show(value, &mut shown),
            _ => shown.push_str(LEFT_OUT),
        }
        f.write_str(&shown.text)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = Shown::default();
        text::show(self.0, &mut shown);
        f.write_str(&shown.text)
    }
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LEFT_OUT} ({} bytes)", self.0.len())
    }
}

/// `Debug` shows no more than `Display`, so that deriving it for a type that holds one of these shows
/// no secret.
macro_rules! debug_as_shown {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    )*};
}

debug_as_shown!(Url Header Text Body);

/// Shown in place of what is left out.
const LEFT_OUT: &str = "…";

/// What is shown so far.
#[derive(Default)]
struct Shown {
    text: String,
    count: usize,
}

impl Shown {
    fn is_full(&self) -> bool {
        self.count > MAX_SHOWN
    }

    /// Without what is invisible, and with a blank for whatever ends a line.
    fn push(&mut self, c: char) {
        let c = if c.is_whitespace() { ' ' } else { c };
        if self.is_full() || c.is_control() || is_invisible(c) {
            return;
        }
        self.count += 1;
        match self.is_full() {
            true => self.text.push_str(LEFT_OUT),
            false => self.text.push(c),
        }
    }

    fn push_str(&mut self, text: &str) {
        for c in text.chars() {
            if self.is_full() {
                return;
            }
            self.push(c);
        }
    }
}

impl Write for Shown {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

/// Characters that separate lines, change the direction of writing, or are not seen at all.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests;

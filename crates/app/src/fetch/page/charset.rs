//! The encoding of a page that its response, its declaration or its bytes tell.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// The encoding that the parameter of a content type names, if it does.
pub(super) fn charset_parameter(parameter: &str) -> Option<&'static Encoding> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("charset") {
        return None;
    }
    let label = value.trim().trim_matches(['"', '\'']);
    Encoding::for_label_no_replacement(label.as_bytes())
}

/// The encoding that the declaration of an XHTML page names.
pub(super) fn xml_encoding(head: &[u8]) -> Option<&'static Encoding> {
    let declaration = head.strip_prefix(b"<?xml")?;
    let declaration = declaration.split(|&byte| byte == b'>').next()?;
    let declaration = str::from_utf8(declaration).ok()?;
    let (_, rest) = declaration.split_once("encoding")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let label = rest[1..].split(quote).next()?;
    let encoding = Encoding::for_label_no_replacement(label.as_bytes())?;
    // What could be read up to here is no UTF-16.
    encoding.is_ascii_compatible().then_some(encoding)
}

/// What a page without a declaration is encoded in.
pub(super) fn guess(head: &[u8]) -> &'static Encoding {
    match str::from_utf8(head) {
        // The last character may be cut.
        Err(error) if error.error_len().is_some() => WINDOWS_1252,
        _ => UTF_8,
    }
}

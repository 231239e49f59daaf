//! URLs without what may be secret.

use ::url::Url;

use super::{LEFT_OUT, Shown, text};

/// Shows a URL, or a path with its query; nothing of what is neither.
pub(super) fn show(url: &str, shown: &mut Shown) {
    if let Ok(url) = Url::parse(url) {
        show_parsed(&url, shown);
    } else if url.starts_with('/') && !url.starts_with("//") {
        show_relative(url, shown);
    } else {
        // Where its parts end is not known, so nothing of it is known to be harmless.
        shown.push_str(LEFT_OUT);
    }
}

fn show_parsed(url: &Url, shown: &mut Shown) {
    let Some(host) = url.host_str() else {
        // `mailto:`, `data:` and the like: all of it is content.
        shown.push_str(url.scheme());
        shown.push(':');
        return shown.push_str(LEFT_OUT);
    };
    shown.push_str(url.scheme());
    shown.push_str("://");
    shown.push_str(host);
    if let Some(port) = url.port() {
        shown.push(':');
        shown.push_str(&port.to_string());
    }
    show_path(url.path(), shown);
    if let Some(query) = url.query() {
        show_query(query, shown);
    }
}

fn show_relative(target: &str, shown: &mut Shown) {
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    show_path(path, shown);
    if let Some(query) = query {
        show_query(query, shown);
    }
}

/// Some services have keys in the path, such as those of chat bots and webhooks.
fn show_path(path: &str, shown: &mut Shown) {
    for (segment, index) in path.split('/').zip(0..) {
        if index > 0 {
            shown.push('/');
        }
        if text::is_secret(segment) {
            shown.push_str(LEFT_OUT);
        } else {
            shown.push_str(segment);
        }
    }
}

fn show_query(query: &str, shown: &mut Shown) {
    let mut separator = '?';
    for pair in query.split('&') {
        if shown.is_full() {
            return;
        }
        shown.push(separator);
        separator = '&';
        match name_of(pair) {
            Some(name) => {
                shown.push_str(name);
                shown.push_str("=…");
            }
            None => shown.push_str(LEFT_OUT),
        }
    }
}

/// The name in a pair of name and value. What has no value may be one itself, and base64 ends with
/// `=` too.
fn name_of(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    let is_name = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.[]$".contains(&byte));
    let has_value = value.bytes().any(|byte| byte != b'=');
    (is_name && has_value && !text::is_secret(name)).then_some(name)
}

/// Longer ones are rather values.
const LONGEST_NAME: usize = 40;

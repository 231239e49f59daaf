//! Values by host or other key: that of the key itself, else of the longest matching pattern, else the
//! default.
//!
//! Values are referred to by a small [`HostIndex`]: a gate stores two bytes for its settings, and a
//! reload replaces the whole list.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::key;
use crate::setting::SettingValue;

/// A host, all its subdomains, or keys that need not be hosts.
///
/// A host is parsed from text and normalised. A key that is no host, such as an account, is taken as
/// it is, by [`HostPattern::key`] or [`HostPattern::key_prefix`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostPattern {
    /// This host or key.
    Exact(String),
    /// All subdomains of this host, but not the host itself.
    Below(String),
    /// All keys that begin with this text.
    Prefix(String),
}

impl HostPattern {
    /// This key, which need not be a host. It is not normalised.
    pub fn key(key: &str) -> Self {
        Self::Exact(key.to_owned())
    }

    /// All keys that begin with `prefix`, which is not normalised.
    ///
    /// ```
    /// # use tidegate_policy::hosts as tidegate;
    /// let accounts = tidegate::HostPattern::key_prefix("account:");
    /// assert!(accounts.matches("account:42") && !accounts.matches("accounts.example.com"));
    /// ```
    pub fn key_prefix(prefix: &str) -> Self {
        Self::Prefix(prefix.to_owned())
    }

    /// Whether it matches a [normalised](key::normalize) host without a port.
    ///
    /// ```
    /// # use tidegate_policy::hosts as tidegate;
    /// let pattern: tidegate::HostPattern = "*.example.com".parse().unwrap();
    /// assert!(pattern.matches("a.b.example.com"));
    /// assert!(!pattern.matches("example.com") && !pattern.matches("badexample.com"));
    /// ```
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(known) => known == host,
            Self::Below(parent) => host
                .strip_suffix(parent.as_str())
                .is_some_and(|front| front.ends_with('.')),
            Self::Prefix(prefix) => host.starts_with(prefix),
        }
    }
}

/// Why a text is neither a host nor a pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPatternError {
    value: String,
    expected: &'static str,
}

impl HostPatternError {
    /// What was expected instead.
    pub const fn expected(&self) -> &'static str {
        self.expected
    }
}

impl fmt::Display for HostPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, expected } = self;
        write!(
            f,
            "`{value}` is not a pattern of hosts: expected {expected}"
        )
    }
}

impl Error for HostPatternError {}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, HostPatternError> {
        let wrong = |value: &str, expected| HostPatternError {
            value: value.to_owned(),
            expected,
        };
        let (is_below, host) = match text.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, text),
        };
        // The error shows the text without what may be secret in it.
        let host = key::normalize(host).map_err(|error| wrong(error.value(), error.expected()))?;
        if without_port(&host) != host || text.contains("://") {
            return Err(wrong(
                &host,
                "a host without scheme and port, such as `api.example.com` or `*.example.com`",
            ));
        }
        Ok(if is_below {
            Self::Below(host)
        } else {
            Self::Exact(host)
        })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => write!(f, "{host}"),
            Self::Below(host) => write!(f, "*.{host}"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl SettingValue for HostPattern {
    fn read(parts: &[&str]) -> Result<Self, String> {
        let text = parts.first().copied().unwrap_or_default();
        text.parse()
            .map_err(|error: HostPatternError| error.expected().to_owned())
    }

    fn write(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

/// A key without its port: the host of `[::1]:8080` is `[::1]`.
///
/// A port is one or more digits after the only colon outside of brackets. A key that is not a host
/// may end like that and mean something else. A key with a `/`, such as
/// `api.example.com/account:42`, has no port. `account:42` is indistinguishable from a host, so its
/// port is removed.
pub fn without_port(key: &str) -> &str {
    match key.rsplit_once(':') {
        Some((host, port)) if is_digits(port) && may_have_port(host) => host,
        _ => key,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn may_have_port(host: &str) -> bool {
    !host.contains('/') && (host.ends_with(']') || !host.contains(':'))
}

/// The index of a value. Valid for the [`Hosts`] that returned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostIndex(u16);

impl HostIndex {
    /// The default.
    pub const DEFAULT: Self = Self(0);
}

/// Values by host.
///
/// ```
/// # use tidegate_policy::hosts as tidegate;
/// use tidegate::Hosts;
///
/// let mut rates = Hosts::new(2);
/// rates.insert("*.example.com".parse().unwrap(), 10).unwrap();
/// rates.insert("api.example.com".parse().unwrap(), 50).unwrap();
/// assert_eq!(*rates.find("api.example.com:8443"), 50);
/// assert_eq!(*rates.find("www.example.com"), 10);
/// assert_eq!(*rates.find("example.org"), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Hosts<T> {
    /// The default at 0, then the others in order of insertion.
    values: Vec<T>,
    patterns: Vec<HostPattern>,
    exact: BTreeMap<String, HostIndex>,
    /// The patterns of several keys and their indexes, longest first.
    wild: Vec<(HostPattern, HostIndex)>,
}

impl<T> Hosts<T> {
    /// The maximum number of hosts with their own value.
    pub const MAX_HOSTS: usize = u16::MAX as usize;

    /// The same value for every host.
    pub fn new(default: T) -> Self {
        Self {
            values: vec![default],
            patterns: Vec::new(),
            exact: BTreeMap::new(),
            wild: Vec::new(),
        }
    }

    /// Sets the value of a host, key or pattern. `None` if there are already [`Hosts::MAX_HOSTS`].
    pub fn insert(&mut self, pattern: HostPattern, value: T) -> Option<HostIndex> {
        if let Some(index) = self.position(&pattern) {
            self.values[usize::from(index.0)] = value;
            return Some(index);
        }
        let index = HostIndex(u16::try_from(self.values.len()).ok()?);
        self.values.push(value);
        self.patterns.push(pattern.clone());
        match pattern {
            HostPattern::Exact(host) => {
                self.exact.insert(host, index);
            }
            HostPattern::Below(_) | HostPattern::Prefix(_) => {
                self.wild.push((pattern, index));
                self.wild
                    .sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.to_string().len()));
            }
        }
        Some(index)
    }

    /// Gives `key`, which need not be a host, the current value of `host`.
    pub fn alias(&mut self, key: &str, host: &str) {
        let index = self.index_for(host);
        self.exact.insert(key.to_owned(), index);
    }

    /// Removes an [alias](Self::alias). Returns `false` if there was none.
    pub fn forget_alias(&mut self, key: &str) -> bool {
        let index = self.exact.get(key).copied();
        // A host with its own value is not an alias, whatever its name.
        let is_alias = index
            .is_some_and(|index| self.pattern(index) != Some(&HostPattern::Exact(key.to_owned())));
        is_alias && self.exact.remove(key).is_some()
    }

    /// The value for a [normalised](key::normalize) key; a port is ignored.
    pub fn find(&self, key: &str) -> &T {
        self.get(self.index_for(key))
    }

    /// The index of the value for a [normalised](key::normalize) key; a port is ignored.
    pub fn index_for(&self, key: &str) -> HostIndex {
        let host = without_port(key);
        if let Some(index) = self.exact.get(key).or_else(|| self.exact.get(host)) {
            return *index;
        }
        let mut wild = self.wild.iter();
        wild.find(|(pattern, _)| match pattern {
            HostPattern::Prefix(prefix) => key.starts_with(prefix),
            HostPattern::Exact(_) | HostPattern::Below(_) => pattern.matches(host),
        })
        .map_or(HostIndex::DEFAULT, |(_, index)| *index)
    }

    /// The value at an index; the default if the index belongs to other [`Hosts`].
    #[inline]
    pub fn get(&self, index: HostIndex) -> &T {
        let value = self.values.get(usize::from(index.0));
        value.unwrap_or_else(|| self.default_value())
    }

    /// The default value.
    pub fn default_value(&self) -> &T {
        self.values.first().expect("the default is never removed")
    }

    /// The host or pattern of a value; `None` for the default.
    pub fn pattern(&self, index: HostIndex) -> Option<&HostPattern> {
        self.patterns.get(usize::from(index.0).checked_sub(1)?)
    }

    /// All hosts and patterns with their values, in order of insertion, without the default.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&HostPattern, &T)> {
        self.patterns.iter().zip(&self.values[1..])
    }

    /// All values, including the default.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut()
    }

    /// Other values for the same hosts, with the same indexes.
    pub fn map<U>(&self, change: impl FnMut(&T) -> U) -> Hosts<U> {
        Hosts {
            values: self.values.iter().map(change).collect(),
            patterns: self.patterns.clone(),
            exact: self.exact.clone(),
            wild: self.wild.clone(),
        }
    }

    fn position(&self, pattern: &HostPattern) -> Option<HostIndex> {
        match pattern {
            HostPattern::Exact(host) => self.exact.get(host).copied(),
            HostPattern::Below(_) | HostPattern::Prefix(_) => {
                let mut wild = self.wild.iter();
                wild.find(|(known, _)| known == pattern)
                    .map(|(_, index)| *index)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap()
    }

    #[test]
    fn exact_host_wins_over_longest_pattern() {
        let mut hosts = Hosts::new("default");
        hosts.insert(pattern("*.com"), "short").unwrap();
        hosts.insert(pattern("*.example.com"), "long").unwrap();
        hosts.insert(pattern("a.example.com"), "exact").unwrap();
        assert_eq!(*hosts.find("a.example.com"), "exact");
        assert_eq!(*hosts.find("b.example.com:8080"), "long");
        assert_eq!(*hosts.find("example.com"), "short");
        assert_eq!(*hosts.find("example.org"), "default");
        let index = hosts.index_for("b.example.com");
        assert_eq!(hosts.pattern(index), Some(&pattern("*.example.com")));
        assert_eq!(hosts.pattern(HostIndex::DEFAULT), None);
    }

    #[test]
    fn any_key_has_the_value_of_itself_or_of_the_longest_prefix() {
        let mut values = Hosts::new("default");
        let prefix = HostPattern::key_prefix;
        values.insert(prefix("account:"), "accounts").unwrap();
        values.insert(prefix("account:4"), "forties").unwrap();
        values
            .insert(HostPattern::key("account:42"), "own")
            .unwrap();
        values
            .insert(HostPattern::key("Batch Job"), "batch")
            .unwrap();
        assert_eq!(*values.find("account:42"), "own");
        assert_eq!(*values.find("account:43"), "forties");
        assert_eq!(*values.find("account:7"), "accounts");
        assert_eq!(*values.find("Batch Job"), "batch");
        assert_eq!(*values.find("batch job"), "default");
        assert_eq!(*values.find("accounts.example.com"), "default");
        let index = values.index_for("account:7");
        assert_eq!(values.pattern(index).unwrap().to_string(), "account:*");
        values.insert(prefix("account:"), "again").unwrap();
        assert_eq!(
            (*values.find("account:7"), values.iter().len()),
            ("again", 4)
        );
    }

    #[test]
    fn parse_error_names_the_text_without_secrets_and_what_was_expected() {
        let error = "api.example.com:80".parse::<HostPattern>();
        assert_eq!(
            error,
            Ok(pattern("api.example.com")),
            "a default port is no port"
        );
        let error = "api.example.com:8080".parse::<HostPattern>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`api.example.com:8080` is not a pattern of hosts: expected a host without scheme and \
             port, such as `api.example.com` or `*.example.com`"
        );
        let error = "https://user:secret@a b/"
            .parse::<HostPattern>()
            .unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn inserting_again_replaces_the_value() {
        let mut hosts = Hosts::new(0);
        let first = hosts.insert(pattern("a.example.com"), 1).unwrap();
        let wild = hosts.insert(pattern("*.example.com"), 2).unwrap();
        assert_eq!(hosts.insert(pattern("a.example.com"), 3), Some(first));
        assert_eq!(hosts.insert(pattern("*.example.com"), 4), Some(wild));
        assert_eq!((*hosts.get(first), *hosts.get(wild)), (3, 4));
        assert_eq!(hosts.iter().len(), 2);
    }

    #[test]
    fn mapped_values_keep_their_indexes() {
        let mut hosts = Hosts::new(0);
        let index = hosts.insert(pattern("*.example.com"), 1).unwrap();
        hosts.alias("llm/a", "a.example.com");
        let doubled = hosts.map(|value| format!("{}", 2 * value));
        assert_eq!(doubled.get(index), "2");
        assert_eq!(doubled.index_for("llm/a"), index);
        assert_eq!(doubled.find("example.org"), "0");
    }

    #[test]
    fn removes_aliases_but_not_hosts() {
        let mut hosts = Hosts::new(0);
        hosts.insert(pattern("a.example.com"), 1).unwrap();
        hosts.alias("llm/a", "a.example.com");
        assert_eq!(*hosts.find("llm/a"), 1);
        assert!(hosts.forget_alias("llm/a") && !hosts.forget_alias("llm/a"));
        assert!(!hosts.forget_alias("a.example.com"));
        assert_eq!((*hosts.find("llm/a"), *hosts.find("a.example.com")), (0, 1));
    }

    #[test]
    fn ignores_ports() {
        assert_eq!(without_port("a.example.com:8080"), "a.example.com");
        assert_eq!(without_port("[::1]:8080"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
        assert_eq!(without_port("a"), "a");
        assert_eq!(without_port("account:42"), "account");
    }

    #[test]
    fn keeps_text_after_colon_that_is_not_a_port() {
        for key in [
            "tenant:blue",
            "tenant:42x",
            "tenant:",
            "tenant:blue:42",
            "::1",
            "api.example.com/account:42",
            "api.example.com:8080/account:42",
            "api.example.com/account:42x",
        ] {
            assert_eq!(without_port(key), key);
        }
    }

    #[test]
    fn key_with_path_gets_the_default() {
        let mut hosts = Hosts::new("default");
        hosts.insert(pattern("api.example.com"), "exact").unwrap();
        hosts.insert(pattern("*.example.com"), "below").unwrap();
        assert_eq!(*hosts.find("api.example.com/account:42"), "default");
        assert_eq!(*hosts.find("api.example.com:8080"), "exact");
    }

    #[test]
    fn insertion_fails_at_max_hosts() {
        let mut hosts = Hosts::new(0_u32);
        for number in 1..=u32::try_from(Hosts::<u32>::MAX_HOSTS).unwrap() {
            let host = HostPattern::Exact(format!("h{number}"));
            hosts.insert(host, number).unwrap();
        }
        assert_eq!(hosts.insert(pattern("one.more"), 1), None);
        assert_eq!(*hosts.find("h65535"), 65_535);
    }
}

//! Which links a crawl follows.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use regex::{Regex, RegexBuilder};
use url::Url;

/// Which links a crawl follows: how deep, on which hosts, and which URLs.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The depth of the last pages whose links are not followed any more; `None` follows none.
    max_depth: Option<u32>,
    same_host: bool,
    include: Vec<Regex>,
    exclude: Vec<Regex>,
}

impl Scope {
    /// A scope that follows links `depth` deep if it crawls, on the hosts of the given URLs if
    /// `same_host`, to URLs that an `include` pattern is found in (without any: to all), and no
    /// `exclude` pattern.
    ///
    /// # Errors
    ///
    /// If a pattern is no regular expression, takes too much memory, or there are too many.
    pub fn new(
        crawl: bool,
        depth: u32,
        same_host: bool,
        include: &[String],
        exclude: &[String],
    ) -> Result<Self, BadPattern> {
        Ok(Self {
            max_depth: crawl.then_some(depth),
            same_host,
            include: compile(include)?,
            exclude: compile(exclude)?,
        })
    }

    /// Whether pages at this depth are searched for links.
    pub fn searches(&self, depth: u32) -> bool {
        self.max_depth.is_some_and(|max| depth < max)
    }

    /// Whether a link is followed. Given URLs have depth 0, the links on them depth 1.
    pub fn follows(&self, link: &Url, depth: u32, seeds: &SeedHosts) -> bool {
        self.max_depth.is_some_and(|max| depth <= max) && self.includes(link, seeds)
    }

    /// Whether a URL that was found in a sitemap, or is the target of a redirect, is fetched.
    pub fn includes(&self, link: &Url, seeds: &SeedHosts) -> bool {
        let is_found = |pattern: &Regex| pattern.is_match(link.as_str());
        (!self.same_host || seeds.contains(link))
            && (self.include.is_empty() || self.include.iter().any(is_found))
            && !self.exclude.iter().any(is_found)
    }
}

/// The most patterns of either kind: each is tried on every link.
const MAX_PATTERNS: usize = 100;

/// The most memory of one compiled pattern, in bytes: enough for a thousand words, too little for
/// `(\w{100}){100}`.
const MAX_PATTERN_SIZE: usize = 1 << 20;

fn compile(patterns: &[String]) -> Result<Vec<Regex>, BadPattern> {
    if let Some(pattern) = patterns.get(MAX_PATTERNS) {
        return Err(BadPattern {
            pattern: pattern.clone(),
            problem: format!("is one too many: expected at most {MAX_PATTERNS} patterns"),
        });
    }
    let compile = |pattern: &String| {
        RegexBuilder::new(pattern)
            .size_limit(MAX_PATTERN_SIZE)
            .dfa_size_limit(MAX_PATTERN_SIZE)
            .build()
            .map_err(|error| BadPattern {
                pattern: pattern.clone(),
                problem: describe(&error),
            })
    };
    patterns.iter().map(compile).collect()
}

/// Puts the several lines of a syntax error, with the pattern and a mark below it, into one.
fn describe(error: &regex::Error) -> String {
    let text = match error {
        regex::Error::CompiledTooBig(_) => {
            return "takes too much memory: expected a simpler pattern".to_owned();
        }
        regex::Error::Syntax(text) => text,
        _ => return format!("is no regular expression: {error}"),
    };
    let what = text.lines().find_map(|line| line.strip_prefix("error: "));
    let what = what.unwrap_or("it cannot be parsed");
    // The second line is the pattern, indented by four, the third marks the place below it; a pattern
    // of several lines is shown otherwise.
    let mark = text.lines().nth(2).and_then(|line| line.find('^'));
    match mark.and_then(|mark| mark.checked_sub(3)) {
        Some(place) if text.lines().count() == 4 => {
            format!("is no regular expression: {what} at character {place}")
        }
        _ => format!("is no regular expression: {what}"),
    }
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern {
    pattern: String,
    problem: String,
}

impl fmt::Display for BadPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.pattern, self.problem)
    }
}

impl std::error::Error for BadPattern {}

/// The hosts of the given URLs.
///
/// A host is its name or address with the port, if that is not the scheme's own: `http` and `https`
/// are one host, `www.example.com` and `example.com` are two. Stored as hashes with a random seed: a
/// collision cannot be provoked, and none is to be expected among these few.
#[derive(Clone, Debug, Default)]
pub struct SeedHosts {
    seed: RandomState,
    hashes: HashSet<u64>,
    is_full: bool,
}

impl SeedHosts {
    /// The most hosts: about 9 MiB. The links of further hosts are not followed.
    const MAX: usize = 500_000;

    /// No hosts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the host of a URL.
    pub fn insert(&mut self, url: &Url) {
        if self.hashes.len() < Self::MAX {
            self.hashes.insert(self.hash(url));
        } else if !self.contains(url) {
            self.is_full = true;
        }
    }

    /// Whether the URL is on one of the hosts.
    pub fn contains(&self, url: &Url) -> bool {
        self.hashes.contains(&self.hash(url))
    }

    /// Whether a host was left out, because there were too many.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    fn hash(&self, url: &Url) -> u64 {
        let host = url.host_str().unwrap_or_default();
        self.seed.hash_one((host.trim_end_matches('.'), url.port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn seeds(urls: &[&str]) -> SeedHosts {
        let mut seeds = SeedHosts::new();
        for text in urls {
            seeds.insert(&url(text));
        }
        seeds
    }

    fn patterns(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|&pattern| pattern.to_owned()).collect()
    }

    #[test]
    fn follows_nothing_unless_it_crawls() {
        let scope = Scope::new(false, 5, false, &[], &[]).unwrap();
        assert!(!scope.follows(&url("http://a.example/"), 1, &SeedHosts::new()));
        assert!(!scope.searches(0));
    }

    #[test]
    fn follows_links_to_the_given_depth() {
        let scope = Scope::new(true, 2, false, &[], &[]).unwrap();
        let link = url("http://a.example/");
        let followed = |depth| scope.follows(&link, depth, &SeedHosts::new());
        assert!(followed(1) && followed(2) && !followed(3));
        assert!(scope.searches(0) && scope.searches(1) && !scope.searches(2));
        let alone = Scope::new(true, 0, false, &[], &[]).unwrap();
        assert!(!alone.searches(0) && !alone.follows(&link, 1, &SeedHosts::new()));
    }

    #[test]
    fn stays_on_the_hosts_of_the_given_urls() {
        let scope = Scope::new(true, 5, true, &[], &[]).unwrap();
        let seeds = seeds(&[
            "http://a.example/x",
            "http://b.example:8080/",
            "http://[::1]/",
        ]);
        let followed = |link| scope.follows(&url(link), 1, &seeds);
        assert!(followed("http://a.example/y"));
        assert!(followed("https://a.example/y"));
        assert!(followed("http://A.example.:80/y"));
        assert!(followed("http://b.example:8080/"));
        assert!(followed("http://[::1]/x"));
        assert!(!followed("http://b.example/"));
        assert!(!followed("http://a.example:8080/"));
        assert!(!followed("http://www.a.example/"));
        assert!(!followed("http://example/"));
    }

    #[test]
    fn excludes_what_is_included_too() {
        let include = patterns(&["/docs/", "^https://b[.]example/"]);
        let scope =
            Scope::new(true, 5, false, &include, &patterns(&["[.]pdf$", "private"])).unwrap();
        let followed = |link| scope.follows(&url(link), 1, &SeedHosts::new());
        assert!(followed("http://a.example/docs/x"));
        assert!(followed("https://b.example/"));
        assert!(!followed("http://b.example/"));
        assert!(!followed("http://a.example/docs/x.pdf"));
        assert!(followed("http://a.example/docs/x.pdf?page=1"));
        assert!(!followed("https://b.example/private"));
    }

    #[test]
    fn says_where_a_pattern_is_wrong() {
        let refused = |pattern: &str| {
            Scope::new(true, 1, false, &[], &patterns(&[pattern]))
                .unwrap_err()
                .to_string()
        };
        insta::assert_snapshot!(refused("a(b"), @"`a(b` is no regular expression: unclosed group at character 2");
        insta::assert_snapshot!(refused("*.pdf"), @"`*.pdf` is no regular expression: repetition operator missing expression at character 1");
        insta::assert_snapshot!(refused("ab[z-a]"), @"`ab[z-a]` is no regular expression: invalid character class range, the start must be <= the end at character 4");
        insta::assert_snapshot!(refused(r"(\w{100}){100}"), @r"`(\w{100}){100}` takes too much memory: expected a simpler pattern");
        insta::assert_snapshot!(refused("a\n("), @"
        `a
        (` is no regular expression: unclosed group
        ");
        let many = vec!["a".to_owned(); MAX_PATTERNS + 1];
        let refused = Scope::new(true, 1, false, &many, &[])
            .unwrap_err()
            .to_string();
        insta::assert_snapshot!(refused, @"`a` is one too many: expected at most 100 patterns");
    }

    #[test]
    fn bounds_the_hosts() {
        let mut seeds = SeedHosts::new();
        for number in 0..SeedHosts::MAX {
            seeds.hashes.insert(number as u64);
        }
        seeds.insert(&url("http://a.example/"));
        assert!(seeds.is_full() && !seeds.contains(&url("http://a.example/")));
    }
}

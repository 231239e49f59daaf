//! Which hosts of other sites are known as trackers.
//!
//! A small built-in list of domains whose business is to follow visitors over many sites; or, with
//! `--filters`, the network rules of a list in EasyList's format, which replace it. What is a third
//! party is decided by the registrable domain, from the Public Suffix List: `cdn.example.co.uk`
//! belongs to `www.example.co.uk`, `a.github.io` does not belong to `b.github.io`.

use std::fmt;

use adblock::Engine;
use adblock::lists::{FilterSet, ParseOptions, ParsedLine, RuleTypes, parse_filter};
use adblock::request::Request;
use adblock::url_parser::parse_url;
use url::{Host, Url};

/// Decides which resources of other sites are trackers.
pub struct Trackers {
    /// Rules that replace the built-in list.
    filters: Option<Engine>,
}

impl Trackers {
    /// The built-in list.
    pub const fn built_in() -> Self {
        Self { filters: None }
    }

    /// The network rules of a list in EasyList's format. Comments and rules that hide elements are
    /// ignored, as are rules that cannot be read: lists have rules for programs of all kinds.
    pub fn with_filters(text: &str) -> Result<Self, BadFilters> {
        if text.len() > MAX_FILTERS {
            return Err(BadFilters::TooLong);
        }
        let options = ParseOptions {
            rule_types: RuleTypes::NetworkOnly,
            ..ParseOptions::default()
        };
        let mut regexes = 0;
        let mut usable = Vec::new();
        for line in text.lines().map(str::trim) {
            let wildcards = memchr::memchr_iter(b'*', line.as_bytes()).take(MAX_WILDCARDS + 1);
            if line.len() > MAX_RULE || wildcards.count() > MAX_WILDCARDS {
                continue;
            }
            if !is_network_rule(line, options) {
                continue;
            }
            if needs_regex(line) {
                regexes += 1;
                if regexes > MAX_REGEXES || !is_small_regex(line) {
                    continue;
                }
            }
            usable.push(line);
        }
        if usable.is_empty() {
            return Err(BadFilters::NoRule);
        }
        let mut filters = FilterSet::new(false);
        filters.add_filter_list(usable.join("\n"), options);
        Ok(Self {
            filters: Some(Engine::new_with_filter_set(filters)),
        })
    }

    /// Whether `resource`, which the page loads, is a tracker. What belongs to the page's own site
    /// never is with the built-in list; filters decide themselves.
    pub fn is_tracker(&self, page: &Url, resource: &Url, kind: ResourceKind) -> bool {
        let is_third_party = is_third_party(page, resource);
        let Some(filters) = &self.filters else {
            return is_third_party
                && resource
                    .host_str()
                    .is_some_and(|host| known(host).is_some());
        };
        // Rules match the start of a URL; a longer one carries data.
        let url = resource.as_str();
        let url = &url[..url.floor_char_boundary(MAX_MATCHED)];
        let request = Request::preparsed(
            url,
            resource.host_str().unwrap_or(""),
            page.host_str().unwrap_or(""),
            kind.as_str(),
            is_third_party,
            "get",
        );
        filters.check_network_request(&request).should_block()
    }
}

impl fmt::Debug for Trackers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trackers")
            .field("has_filters", &self.filters.is_some())
            .finish_non_exhaustive()
    }
}

/// The longest list: EasyList has 3 MB.
pub const MAX_FILTERS: usize = 64 << 20;
/// The longest rule. EasyList's longest has 4 KB, all of it domains.
const MAX_RULE: usize = 16 << 10;
/// Wildcards in a rule. Each adds a step for every byte of a URL; real rules have a few.
const MAX_WILDCARDS: usize = 20;
/// Rules with a regular expression. EasyList has a few dozen; each is compiled when it is needed.
const MAX_REGEXES: usize = 500;
/// The size of a compiled regular expression, which bounds the steps for every byte of a URL.
const MAX_REGEX_SIZE: usize = 64 << 10;
/// The bytes of a URL that rules look at.
const MAX_MATCHED: usize = 2048;

/// Why a list of filters cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFilters {
    /// It is longer than [`MAX_FILTERS`].
    #[error("the list is longer than 64 MiB")]
    TooLong,
    /// Nothing in it is a rule for requests.
    #[error(
        "no line is a rule for requests, expected rules such as `||tracker.example^$third-party`"
    )]
    NoRule,
}

/// What a page loads a resource as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A script.
    Script,
    /// An image, also one of several sizes.
    Image,
    /// A style sheet.
    Style,
    /// A page inside the page.
    Frame,
    /// Sound, video or a subtitle track.
    Media,
    /// A plug-in's content.
    Object,
    /// A font that is loaded ahead.
    Font,
    /// A request that a click sends along.
    Ping,
    /// Anything else, such as an icon or a manifest.
    Other,
}

impl ResourceKind {
    /// The name of the kind in filters.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Image => "image",
            Self::Style => "stylesheet",
            Self::Frame => "subdocument",
            Self::Media => "media",
            Self::Object => "object",
            Self::Font => "font",
            Self::Ping => "ping",
            Self::Other => "other",
        }
    }
}

/// Whether `resource` belongs to another site than `page`: another registrable domain, or another
/// address.
pub fn is_third_party(page: &Url, resource: &Url) -> bool {
    match (page.host(), resource.host()) {
        (Some(Host::Domain(page_host)), Some(Host::Domain(host))) => {
            page_host != host && site(page) != site(resource)
        }
        (page, host) => page != host,
    }
}

/// The registrable domain of a URL, in lower case.
fn site(url: &Url) -> Option<String> {
    // The host alone: the parser would look at the whole URL.
    let url = format!("http://{}/", url.host_str()?.trim_end_matches('.'));
    parse_url(&url).map(|url| url.domain().to_owned())
}

fn is_network_rule(line: &str, options: ParseOptions) -> bool {
    matches!(
        parse_filter(line, false, options),
        Ok(ParsedLine::Network(_))
    )
}

/// Whether a rule is a regular expression: `/…/` or `/…/$options`.
fn needs_regex(line: &str) -> bool {
    let rule = line.trim_start_matches("@@");
    rule.starts_with('/')
        && rule
            .rfind('/')
            .is_some_and(|end| end > 0 && ends_pattern(&rule[end + 1..]))
}

fn ends_pattern(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('$')
}

/// Whether its regular expression can be compiled within [`MAX_REGEX_SIZE`]. Matching takes time
/// linear in the URL's length then.
fn is_small_regex(line: &str) -> bool {
    let rule = line.trim_start_matches("@@");
    let end = rule.rfind('/').unwrap_or(rule.len());
    let pattern = rule.get(1..end).unwrap_or("");
    regex::bytes::RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(MAX_REGEX_SIZE)
        .build()
        .is_ok()
}

/// A domain in the built-in list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tracker {
    /// The domain; its subdomains are trackers too.
    pub(super) domain: &'static str,
    /// The company that runs it.
    pub(super) owner: &'static str,
    /// What it does.
    pub(super) category: Category,
}

/// What a tracker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    /// Shows or sells advertising.
    Advertising,
    /// Measures visits.
    Analytics,
    /// Belongs to a social network and reports visits to it.
    Social,
    /// Records what visitors do on a page.
    SessionReplay,
    /// Loads other trackers.
    TagManager,
}

impl Category {
    /// The word for it in reports.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Advertising => "advertising",
            Self::Analytics => "analytics",
            Self::Social => "social network",
            Self::SessionReplay => "session replay",
            Self::TagManager => "tag manager",
        }
    }
}

/// The entry of a host in the built-in list: its own, or that of a domain above it.
pub(super) fn known(host: &str) -> Option<&'static Tracker> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let mut name = host.as_str();
    loop {
        let found = BUILT_IN.binary_search_by(|tracker| tracker.domain.cmp(name));
        if let Ok(index) = found {
            return Some(&BUILT_IN[index]);
        }
        name = name.split_once('.')?.1;
    }
}

macro_rules! trackers {
    ($($domain:literal $owner:literal $category:ident,)*) => {
        &[$(Tracker { domain: $domain, owner: $owner, category: Category::$category },)*]
    };
}

/// By domain, for the search in [`known`].
const BUILT_IN: &[Tracker] = trackers! {
    "2mdn.net" "Google" Advertising,
    "33across.com" "33Across" Advertising,
    "addthis.com" "Oracle" Social,
    "addtoany.com" "AddToAny" Social,
    "adform.net" "Adform" Advertising,
    "adnxs.com" "Microsoft" Advertising,
    "adroll.com" "NextRoll" Advertising,
    "adsafeprotected.com" "Integral Ad Science" Advertising,
    "adsrvr.org" "The Trade Desk" Advertising,
    "advertising.com" "Yahoo" Advertising,
    "amazon-adsystem.com" "Amazon" Advertising,
    "amplitude.com" "Amplitude" Analytics,
    "analytics.tiktok.com" "TikTok" Social,
    "analytics.twitter.com" "X" Social,
    "appsflyer.com" "AppsFlyer" Analytics,
    "bat.bing.com" "Microsoft" Advertising,
    "bidswitch.net" "Criteo" Advertising,
    "bluekai.com" "Oracle" Advertising,
    "bounceexchange.com" "Wunderkind" Advertising,
    "branch.io" "Branch" Analytics,
    "casalemedia.com" "Index Exchange" Advertising,
    "chartbeat.com" "Chartbeat" Analytics,
    "chartbeat.net" "Chartbeat" Analytics,
    "clarity.ms" "Microsoft" SessionReplay,
    "clicktale.net" "Contentsquare" SessionReplay,
    "cloudflareinsights.com" "Cloudflare" Analytics,
    "contentsquare.net" "Contentsquare" SessionReplay,
    "crazyegg.com" "Crazy Egg" SessionReplay,
    "criteo.com" "Criteo" Advertising,
    "criteo.net" "Criteo" Advertising,
    "demdex.net" "Adobe" Advertising,
    "doubleclick.net" "Google" Advertising,
    "doubleverify.com" "DoubleVerify" Advertising,
    "everesttech.net" "Adobe" Advertising,
    "exelator.com" "Nielsen" Advertising,
    "facebook.net" "Meta" Social,
    "fullstory.com" "FullStory" SessionReplay,
    "google-analytics.com" "Google" Analytics,
    "googleadservices.com" "Google" Advertising,
    "googlesyndication.com" "Google" Advertising,
    "googletagmanager.com" "Google" TagManager,
    "googletagservices.com" "Google" Advertising,
    "heap.io" "Contentsquare" Analytics,
    "heapanalytics.com" "Contentsquare" Analytics,
    "hotjar.com" "Contentsquare" SessionReplay,
    "hotjar.io" "Contentsquare" SessionReplay,
    "hs-analytics.net" "HubSpot" Analytics,
    "id5-sync.com" "ID5" Advertising,
    "imrworldwide.com" "Nielsen" Analytics,
    "inspectlet.com" "Inspectlet" SessionReplay,
    "intentiq.com" "Intent IQ" Advertising,
    "krxd.net" "Salesforce" Advertising,
    "liadm.com" "LiveIntent" Advertising,
    "lijit.com" "Sovrn" Advertising,
    "logrocket.com" "LogRocket" SessionReplay,
    "lr-ingest.io" "LogRocket" SessionReplay,
    "mathtag.com" "MediaMath" Advertising,
    "matomo.cloud" "InnoCraft" Analytics,
    "mc.yandex.ru" "Yandex" Analytics,
    "media.net" "Media.net" Advertising,
    "mixpanel.com" "Mixpanel" Analytics,
    "mktoresp.com" "Adobe" Analytics,
    "moatads.com" "Oracle" Advertising,
    "mookie1.com" "GroupM" Advertising,
    "mouseflow.com" "Mouseflow" SessionReplay,
    "mxpnl.com" "Mixpanel" Analytics,
    "newrelic.com" "New Relic" Analytics,
    "nr-data.net" "New Relic" Analytics,
    "omtrdc.net" "Adobe" Analytics,
    "openx.net" "OpenX" Advertising,
    "optimizely.com" "Optimizely" Analytics,
    "outbrain.com" "Outbrain" Advertising,
    "parsely.com" "Automattic" Analytics,
    "permutive.com" "Permutive" Advertising,
    "plausible.io" "Plausible" Analytics,
    "posthog.com" "PostHog" Analytics,
    "pubmatic.com" "PubMatic" Advertising,
    "px.ads.linkedin.com" "LinkedIn" Advertising,
    "quantcount.com" "Quantcast" Analytics,
    "quantserve.com" "Quantcast" Analytics,
    "rlcdn.com" "LiveRamp" Advertising,
    "rubiconproject.com" "Magnite" Advertising,
    "sc-static.net" "Snap" Social,
    "scorecardresearch.com" "Comscore" Analytics,
    "segment.com" "Twilio" Analytics,
    "segment.io" "Twilio" Analytics,
    "sharethis.com" "ShareThis" Social,
    "sharethrough.com" "Sharethrough" Advertising,
    "simpli.fi" "Simpli.fi" Advertising,
    "smartadserver.com" "Equativ" Advertising,
    "snap.licdn.com" "LinkedIn" Advertising,
    "statcounter.com" "StatCounter" Analytics,
    "static.ads-twitter.com" "X" Social,
    "taboola.com" "Taboola" Advertising,
    "tapad.com" "Experian" Advertising,
    "teads.tv" "Teads" Advertising,
    "tealiumiq.com" "Tealium" TagManager,
    "tiqcdn.com" "Tealium" TagManager,
    "tr.snapchat.com" "Snap" Advertising,
    "turn.com" "Amobee" Advertising,
    "yieldmo.com" "Yieldmo" Advertising,
    "zemanta.com" "Outbrain" Advertising,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn built_in_list_is_sorted_and_has_no_duplicates() {
        assert!(BUILT_IN.is_sorted_by(|one, next| one.domain < next.domain));
        assert!(BUILT_IN.len() >= 60);
    }

    #[test]
    fn built_in_list_has_registrable_domains_or_subdomains_in_lower_case() {
        for tracker in BUILT_IN {
            let host = url(&format!("http://{}/", tracker.domain));
            assert_eq!(host.host_str(), Some(tracker.domain));
            assert!(tracker.domain.ends_with(&site(&host).unwrap()));
        }
    }

    #[test]
    fn matches_whole_labels_of_a_host() {
        let check = |host: &str, owner: Option<&str>| {
            assert_eq!(known(host).map(|known| known.owner), owner, "{host}");
        };
        check("www.google-analytics.com", Some("Google"));
        check("GOOGLE-ANALYTICS.COM.", Some("Google"));
        check("not-google-analytics.com", None);
        check("google-analytics.com.example.org", None);
        check("example.org", None);
        check("com", None);
        check("", None);
        check("127.0.0.1", None);
    }

    #[test]
    fn third_parties_have_another_registrable_domain() {
        let check = |page: &str, resource: &str, expected| {
            assert_eq!(
                is_third_party(&url(page), &url(resource)),
                expected,
                "{page} {resource}"
            );
        };
        check(
            "https://www.example.co.uk/",
            "https://cdn.example.co.uk/x.js",
            false,
        );
        check(
            "https://www.example.co.uk/",
            "https://other.co.uk/x.js",
            true,
        );
        check("https://a.github.io/", "https://b.github.io/", true);
        check("https://example.com/", "http://example.com:8080/", false);
        check("https://example.com./", "https://cdn.example.com/", false);
        check("http://127.0.0.1:1/", "http://127.0.0.1:2/", false);
        check("http://127.0.0.1/", "http://127.0.0.2/", true);
        check("http://10.0.0.1/", "http://11.0.0.1/", true);
        check("http://[::1]/", "http://[::2]/", true);
        check("http://localhost/", "http://localhost:1/", false);
        check("http://localhost/", "http://other/", true);
    }

    #[test]
    fn built_in_list_leaves_the_sites_own_hosts_alone() {
        let trackers = Trackers::built_in();
        let script = url("https://static.hotjar.com/c/hotjar.js");
        assert!(trackers.is_tracker(&url("https://example.com/"), &script, ResourceKind::Script));
        assert!(!trackers.is_tracker(
            &url("https://www.hotjar.com/"),
            &script,
            ResourceKind::Script
        ));
    }

    const EASY_LIST: &str = "\
[Adblock Plus 2.0]
! Title: a small list
! Expires: 4 days
||tracker.example^$third-party
||cdn.example/pixel^$image
||ads.example^$domain=news.example|~shop.news.example
/banner/*/ads.js
@@||tracker.example/allowed.js$script
@@||ads.example^$domain=good.news.example
/^https?:\\/\\/[a-z]{8}\\.evil\\.example\\//$script
news.example##.advert
news.example#@#.advert
##.banner
||broken.example^$no-such-option
";

    #[test]
    fn applies_rules_exceptions_and_resource_types() {
        use ResourceKind::{Frame, Image, Script};
        let trackers = Trackers::with_filters(EASY_LIST).unwrap();
        let check = |page: &str, resource: &str, kind, expected| {
            let found = trackers.is_tracker(&url(page), &url(resource), kind);
            assert_eq!(found, expected, "{resource} on {page}");
        };
        let page = "https://site.example/";
        check(page, "https://a.tracker.example/t.js", Script, true);
        check(
            "https://www.tracker.example/",
            "https://a.tracker.example/t.js",
            Script,
            false,
        );
        check(page, "https://tracker.example/allowed.js", Script, false);
        check(page, "https://tracker.example/allowed.js", Frame, true);
        check(page, "https://cdn.example/pixel?x", Image, true);
        check(page, "https://cdn.example/pixel?x", Script, false);
        check("https://news.example/", "https://ads.example/", Frame, true);
        check(
            "https://shop.news.example/",
            "https://ads.example/",
            Frame,
            false,
        );
        check(
            "https://good.news.example/",
            "https://ads.example/",
            Frame,
            false,
        );
        check(page, "https://ads.example/", Frame, false);
        check(page, "https://other.example/banner/1/ads.js", Script, true);
        check(page, "https://abcdefgh.evil.example/x", Script, true);
        check(page, "https://abcdefgh.evil.example/x", Image, false);
        check(page, "https://broken.example/", Script, false);
        // The built-in list does not apply.
        check(page, "https://www.google-analytics.com/a.js", Script, false);
    }

    #[test]
    fn refuses_lists_without_a_rule_for_requests() {
        for text in [
            "",
            "\n\n",
            "! comment",
            "##.advert\nexample.com##.x",
            "[Adblock Plus 2.0]",
        ] {
            assert_eq!(
                Trackers::with_filters(text).unwrap_err(),
                BadFilters::NoRule,
                "{text:?}"
            );
        }
    }

    #[test]
    fn skips_regular_expressions_that_are_too_large() {
        let nested = format!("/{}a{}/", "(".repeat(2000), ")".repeat(2000));
        let rules = [
            "/(a{1000}){1000}/",
            "/((a*)*)*b/",
            "/(x+x+)+y/",
            r"/\p{Han}{500}/",
            "/[/",
            &nested,
            "||tracker.example^",
        ];
        let wildcards = format!("||w.example/{}z", "a*".repeat(3000));
        let text = format!("{}\n{wildcards}\n", rules.join("\n"));
        let trackers = Trackers::with_filters(&text).unwrap();
        let page = url("https://site.example/");
        let long = url(&format!("https://w.example/{}", "a".repeat(100_000)));
        assert!(!trackers.is_tracker(&page, &long, ResourceKind::Script));
        let tracker = url("https://tracker.example/");
        assert!(trackers.is_tracker(&page, &tracker, ResourceKind::Script));
    }

    #[test]
    fn takes_any_bytes_for_a_list() {
        let mut text = String::from("||tracker.example^\n");
        for c in [
            '\0',
            '\u{202e}',
            '|',
            '$',
            '@',
            '#',
            '/',
            '*',
            '^',
            '\u{1f600}',
            '~',
            ',',
        ] {
            for count in [1, 2, 3, 40] {
                let run: String = std::iter::repeat_n(c, count).collect();
                text += &format!("{run}\n||{run}\n@@{run}\na{run}b$domain={run}\n/{run}/\n");
            }
        }
        let trackers = Trackers::with_filters(&text).unwrap();
        let page = url("https://site.example/");
        let tracker = url("https://x.example/\u{1f600}?$|^");
        _ = trackers.is_tracker(&page, &tracker, ResourceKind::Other);
    }
}

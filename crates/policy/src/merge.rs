//! Resolves conflicts without a person: the merge rule of an operation's type.
//!
//! - **Nothing is sent blindly.** A resend carries the server's current version, or a document that
//!   contains the server's current state.
//! - **What the server already has is not sent.** A DELETE of something that is gone, or a POST or
//!   PUT of what is already there, is complete under every rule: an earlier attempt whose response
//!   was lost may have done it.
//! - **An uncertain merge is left to a person**: both sides changed the same value, a document is
//!   missing or not JSON, or the changed document is gone.

mod document;

use std::collections::{BTreeMap, BTreeSet};

pub use document::{Document, Number};

/// How to resolve a conflict without a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRule {
    /// Not at all: it waits for a person.
    None,
    /// Overwrite the server's version.
    Ours,
    /// Keep the server's version.
    Theirs,
    /// Merge the changes of both sides as JSON documents.
    Json,
}

crate::words! {
    pub MergeRule {
        None = "none",
        Ours = "ours",
        Theirs = "theirs",
        Json = "json",
    }
}

/// The three sides of a conflict.
#[derive(Clone, Copy, Debug)]
pub struct Conflict<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// The document that the caller's edit started from.
    pub base: Option<&'a [u8]>,
    /// The body of the request.
    pub ours: &'a [u8],
    /// The server's version.
    pub theirs: Theirs<'a>,
    /// Whether the server's current version is known, for `If-Match`.
    pub has_version: bool,
}

/// The server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theirs<'a> {
    /// It was not fetched, or is not a document.
    Unknown,
    /// It does not exist: 404 or 410.
    Gone,
    /// This document.
    Document(&'a [u8]),
}

/// What to do about a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeDecision {
    /// Resend the request with the server's current version.
    Resend,
    /// Send this body instead, with a new idempotency key.
    Replace(Vec<u8>),
    /// Nothing has to be sent.
    Complete,
    /// A person has to decide.
    Person,
}

impl MergeRule {
    /// Applies this rule to `conflict`.
    ///
    /// ```
    /// use tidegate_policy::merge::{Conflict, MergeDecision, MergeRule, Theirs};
    ///
    /// let conflict = Conflict {
    ///     method: "PUT",
    ///     base: Some(br#"{"name":"Ann","city":"Rome"}"#),
    ///     ours: br#"{"name":"Anna","city":"Rome"}"#,
    ///     theirs: Theirs::Document(br#"{"name":"Ann","city":"Oslo"}"#),
    ///     has_version: true,
    /// };
    /// let merged = br#"{"city":"Oslo","name":"Anna"}"#.to_vec();
    /// assert_eq!(MergeRule::Json.decide(&conflict), MergeDecision::Replace(merged));
    /// ```
    pub fn decide(self, conflict: &Conflict<'_>) -> MergeDecision {
        if conflict.is_already_done() {
            return MergeDecision::Complete;
        }
        match self {
            Self::None => MergeDecision::Person,
            Self::Theirs => MergeDecision::Complete,
            Self::Ours => conflict.resend(),
            Self::Json => conflict.merge().unwrap_or(MergeDecision::Person),
        }
    }
}

impl Conflict<'_> {
    /// Whether the server already has the requested state.
    fn is_already_done(&self) -> bool {
        match (self.method, self.theirs) {
            ("DELETE", Theirs::Gone) => true,
            ("POST" | "PUT", Theirs::Document(theirs)) => is_same(self.ours, theirs),
            _ => false,
        }
    }

    fn resend(&self) -> MergeDecision {
        match (self.method, self.theirs) {
            // The conflicting resource is gone, and a new one is to be created.
            ("POST", Theirs::Gone) => MergeDecision::Resend,
            (_, Theirs::Gone) => MergeDecision::Person,
            (_, Theirs::Unknown | Theirs::Document(_)) if self.has_version => MergeDecision::Resend,
            (_, Theirs::Unknown | Theirs::Document(_)) => MergeDecision::Person,
        }
    }

    /// `None` if no merge is certain.
    fn merge(&self) -> Option<MergeDecision> {
        // The body of a PATCH is not a document, and a DELETE has none.
        if !matches!(self.method, "POST" | "PUT") {
            return None;
        }
        let Theirs::Document(theirs) = self.theirs else {
            return None;
        };
        let base = Document::parse(self.base?)?;
        let ours = Document::parse(self.ours)?;
        let theirs = Document::parse(theirs)?;
        let merged = merge(&base, &ours, &theirs)?;
        Some(if merged == theirs {
            MergeDecision::Complete
        } else if merged == ours && self.has_version {
            MergeDecision::Resend
        } else {
            MergeDecision::Replace(merged.to_string().into_bytes())
        })
    }
}

/// Whether two bodies are equal, as JSON documents if both are.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let parsed = || Some(Document::parse(one)? == Document::parse(other)?);
    one == other || parsed().unwrap_or(false)
}

/// Merges the changes from `base` to `ours` and from `base` to `theirs`. Objects are merged by key;
/// anything else is one value. `None` if both sides changed one value differently.
pub fn merge(base: &Document, ours: &Document, theirs: &Document) -> Option<Document> {
    merge_value(Some(base), Some(ours), Some(theirs)).ok()?
}

/// Both sides changed one value differently.
struct Clash;

/// The merged value; `None` where it is absent.
fn merge_value(
    base: Option<&Document>,
    ours: Option<&Document>,
    theirs: Option<&Document>,
) -> Result<Option<Document>, Clash> {
    if ours == theirs || theirs == base {
        return Ok(ours.cloned());
    }
    if ours == base {
        return Ok(theirs.cloned());
    }
    let (
        Some(Document::Object(base)),
        Some(Document::Object(ours)),
        Some(Document::Object(theirs)),
    ) = (base, ours, theirs)
    else {
        return Err(Clash);
    };
    let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut merged = BTreeMap::new();
    for key in keys {
        let value = merge_value(base.get(key), ours.get(key), theirs.get(key))?;
        merged.extend(value.map(|value| (key.clone(), value)));
    }
    Ok(Some(Document::Object(merged)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V: &[u8] = br#"{"a":1,"b":[1,2],"c":{"d":"x","e":null}}"#;

    fn conflict<'a>(method: &'a str, ours: &'a [u8], theirs: Theirs<'a>) -> Conflict<'a> {
        Conflict {
            method,
            base: Some(V),
            ours,
            theirs,
            has_version: true,
        }
    }

    const RULES: [MergeRule; 4] = [
        MergeRule::None,
        MergeRule::Ours,
        MergeRule::Theirs,
        MergeRule::Json,
    ];

    #[test]
    fn completes_what_the_server_already_has_under_every_rule() {
        let same = br#" {"c":{"e":null,"d":"\u0078"},"b":[1.0,2e0],"a":1} "#;
        for rule in RULES {
            for done in [
                conflict("DELETE", b"", Theirs::Gone),
                conflict("POST", V, Theirs::Document(same)),
                conflict("PUT", V, Theirs::Document(same)),
                conflict("POST", b"no json", Theirs::Document(b"no json")),
            ] {
                assert_eq!(
                    rule.decide(&done),
                    MergeDecision::Complete,
                    "{rule} {done:?}"
                );
            }
        }
    }

    #[test]
    fn decides_by_rule_method_and_what_the_server_has() {
        use MergeDecision::{Complete, Person, Resend};
        let other = Theirs::Document(b"other");
        for (method, theirs, has_version, expected) in [
            ("PUT", other, true, [Person, Resend, Complete, Person]),
            ("PUT", other, false, [Person, Person, Complete, Person]),
            (
                "PUT",
                Theirs::Gone,
                true,
                [Person, Person, Complete, Person],
            ),
            (
                "PUT",
                Theirs::Unknown,
                true,
                [Person, Resend, Complete, Person],
            ),
            (
                "PUT",
                Theirs::Unknown,
                false,
                [Person, Person, Complete, Person],
            ),
            (
                "PATCH",
                Theirs::Document(V),
                true,
                [Person, Resend, Complete, Person],
            ),
            (
                "POST",
                Theirs::Gone,
                false,
                [Person, Resend, Complete, Person],
            ),
            ("DELETE", other, true, [Person, Resend, Complete, Person]),
        ] {
            let conflict = Conflict {
                has_version,
                ..conflict(method, V, theirs)
            };
            let decided = RULES.map(|rule| rule.decide(&conflict));
            assert_eq!(decided, expected, "{conflict:?}");
        }
    }

    #[test]
    fn merges_changes_of_different_keys() {
        let check = |ours: &[u8], theirs: &[u8], expected: Option<&str>| {
            let decided = MergeRule::Json.decide(&conflict("PUT", ours, Theirs::Document(theirs)));
            let expected = expected.map_or(MergeDecision::Person, |expected| {
                MergeDecision::Replace(expected.as_bytes().to_vec())
            });
            assert_eq!(decided, expected);
        };
        // Changed, added and removed keys at two depths.
        check(
            br#"{"a":2,"b":[1,2],"c":{"d":"x","e":null,"f":0}}"#,
            br#"{"a":1,"c":{"d":"y"},"g":true}"#,
            Some(r#"{"a":2,"c":{"d":"y","f":0},"g":true}"#),
        );
        // More digits than a double has.
        check(
            br#"{"a":12345678901234567890.123456789,"b":[1,2],"c":{"d":"x","e":null}}"#,
            br#"{"a":1,"b":[],"c":{"d":"x","e":null}}"#,
            Some(r#"{"a":12345678901234567890.123456789,"b":[],"c":{"d":"x","e":null}}"#),
        );
        // One value, or one array, changed on both sides.
        check(br#"{"a":2}"#, br#"{"a":3}"#, None);
        check(br#"{"a":1,"b":[1,2,3]}"#, br#"{"a":1,"b":[0,1,2]}"#, None);
        // Removed on one side, changed on the other.
        check(br#"{"a":1}"#, br#"{"a":1,"b":[1,2],"c":{}}"#, None);
        // Added on both sides.
        check(br#"{"h":{"i":1}}"#, br#"{"h":{"k":1}}"#, None);
        check(b"{", V, None);
    }

    #[test]
    fn sends_nothing_when_the_merge_is_what_the_server_has() {
        let theirs = br#"{"a":2,"b":[1,2],"c":{}}"#;
        let decided = |ours, has_version| {
            let conflict = conflict("PUT", ours, Theirs::Document(theirs));
            MergeRule::Json.decide(&Conflict {
                has_version,
                ..conflict
            })
        };
        assert_eq!(decided(V, true), MergeDecision::Complete);
        let ours = br#"{"a":2,"b":[],"c":{}}"#;
        assert_eq!(decided(ours, true), MergeDecision::Resend);
        assert_eq!(decided(ours, false), MergeDecision::Replace(ours.to_vec()));
    }

    #[test]
    fn leaves_it_to_a_person_without_a_base() {
        let conflict = Conflict {
            base: None,
            ..conflict("PUT", br#"{"a":2}"#, Theirs::Document(V))
        };
        assert_eq!(MergeRule::Json.decide(&conflict), MergeDecision::Person);
    }

    /// Few keys and values, so that both sides often change the same ones.
    fn documents() -> impl Strategy<Value = Document> {
        let leaf = prop_oneof![
            Just("null"),
            Just("true"),
            Just("1"),
            Just("1.0"),
            Just("-2e3"),
            Just("\"x\""),
            Just("[1]"),
            Just("{}"),
        ];
        let leaf = leaf.prop_map(|text| Document::parse(text.as_bytes()).unwrap());
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                4 => prop::collection::btree_map("[a-d]", inner.clone(), 0..4)
                    .prop_map(Document::Object),
                1 => prop::collection::vec(inner, 0..3).prop_map(Document::Array),
            ]
        })
    }

    proptest! {
        #[test]
        fn one_changed_side_wins(base in documents(), changed in documents()) {
            prop_assert_eq!(merge(&base, &changed, &base), Some(changed.clone()));
            prop_assert_eq!(merge(&base, &base, &changed), Some(changed));
        }

        #[test]
        fn merging_is_symmetric_and_idempotent(
            base in documents(),
            ours in documents(),
            theirs in documents(),
        ) {
            let merged = merge(&base, &ours, &theirs);
            prop_assert_eq!(&merge(&base, &theirs, &ours), &merged);
            if let Some(merged) = merged {
                prop_assert_eq!(merge(&base, &merged, &theirs), Some(merged.clone()));
                prop_assert_eq!(merge(&base, &ours, &merged), Some(merged.clone()));
                prop_assert_eq!(merge(&theirs, &merged, &theirs), Some(merged));
            }
        }

        #[test]
        fn decides_about_any_bodies(
            base in prop::collection::vec(any::<u8>(), 0..20),
            ours in prop::collection::vec(any::<u8>(), 0..20),
            theirs in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let conflict = Conflict {
                base: Some(&base),
                ..conflict("PUT", &ours, Theirs::Document(&theirs))
            };
            for rule in RULES {
                rule.decide(&conflict);
            }
        }
    }
}

//! "Did you mean …?" suggestions.

/// The name closest to `wrong`, if it is close enough.
pub fn suggestion<'a>(wrong: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &str| edits(wrong, name);
    let closest = names.iter().copied().min_by_key(|name| distance(name))?;
    // Up to a third of the letters wrong is a typo; more is another word.
    (distance(closest) <= closest.len().div_ceil(3)).then_some(closest)
}

/// The edit distance between `a` and `b`. Only the first 64 letters of each are compared: no
/// setting is longer, and the work stays bounded.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_names_for_typos_only() {
        let names = ["max_rate", "min_rate", "burst"];
        let check = |wrong, meant| assert_eq!(suggestion(wrong, &names), meant, "{wrong}");
        check("max_rat", Some("max_rate"));
        check("max-rate", Some("max_rate"));
        check("bursts", Some("burst"));
        check("brust", Some("burst"));
        check("timeout", None);
        check("", None);
        assert_eq!(suggestion("anything", &[]), None);
    }

    #[test]
    fn compares_only_the_start_of_long_input() {
        assert_eq!(suggestion(&"x".repeat(10_000_000), &["max_rate"]), None);
    }
}

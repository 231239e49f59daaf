//! The page docs/reference/run-rules.md, from the built-in packs.

use std::fmt::Write;

use policy::rules::{PACKS, Rule, Rules};

/// The page.
fn page() -> String {
    let mut page = OPENING.to_owned();
    for name in PACKS {
        let pack = Rules::pack(name).expect("every name has a pack");
        write!(page, "\n## `{name}`\n\n{HEAD}").expect("a string takes everything");
        for rule in pack.rules() {
            let (class, conditions) = (rule.class, conditions(rule));
            let Rule { name, reason, .. } = rule;
            writeln!(page, "| `{name}` | {class} | {conditions} | {reason} |")
                .expect("a string takes everything");
        }
    }
    page
}

const OPENING: &str = "\
# Rule packs of `tidegate run`

<!-- Made from the built-in rules: scripts/update-reference writes it anew. -->

The first rule of a pack that matches decides. Exit code 0 is a success, and a failure that no rule
matches is retryable. [How rules work](../guide/run-rules.md) is a page of its own.
";

const HEAD: &str = "| rule | class | when | reason |\n|---|---|---|---|\n";

fn conditions(rule: &Rule) -> String {
    let quoted = |list: &[std::borrow::Cow<'_, str>], joint: &str| {
        let quoted: Vec<String> = list.iter().map(|phrase| format!("`{phrase}`")).collect();
        quoted.join(joint)
    };
    let exits: Vec<String> = rule.exits.iter().map(ToString::to_string).collect();
    let parts = [
        (rule.exits.is_empty(), format!("exit {}", exits.join(", "))),
        (rule.all.is_empty(), quoted(&rule.all, " and ")),
        (rule.any.is_empty(), quoted(&rule.any, " or ")),
    ];
    let written = parts.into_iter().filter(|(is_empty, _)| !is_empty);
    let written: Vec<String> = written.map(|(_, part)| part).collect();
    written.join("; ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn page_is_up_to_date() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/run-rules.md"
        );
        let page = super::page();
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written, page,
            "docs/reference/run-rules.md is old; scripts/update-reference writes it anew"
        );
    }
}

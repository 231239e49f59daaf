//! The commented default file: every setting, its default and what it is for.

use std::fmt::Write;

use config::schema::{Section, Shape};
use policy::preset::Preset;
use policy::setting::{Kind, Setting, Values};

use super::sections::ROOT;

/// The default file. Reading it gives the defaults; lines that begin with `#` and no blank are
/// examples, which may be put to use by taking the `#` away.
pub fn default_file() -> String {
    let mut file = INTRODUCTION.to_owned();
    for inner in ROOT.tables {
        let Shape::One(section) = inner.shape else {
            continue;
        };
        match inner.name {
            "backoff" => backoffs(&mut file, section),
            "operation" => operations(&mut file, section),
            "pool" => named(&mut file, section, "pool.llm"),
            "client" => named(&mut file, section, "client.app1"),
            "credential" => named(&mut file, section, "credential.crm"),
            name => whole(&mut file, section, name, ""),
        }
        if inner.name == "gate" {
            gate_host(&mut file, section);
        }
    }
    file
}

const INTRODUCTION: &str = r#"# Settings of Tidegate, with their defaults. `tidegate check` shows the worst cases of a file like this one.
#
# Lines that begin with `# ` explain. Lines that begin with `#` alone are examples: remove it to use
# them. Durations have a unit: "500ms", "30s", "5m", "1h", "1d". Every setting can be given in the
# environment instead, TIDEGATE_GATE__MAX_RATE for `max_rate` of `[gate]`.
"#;

/// A section with all its settings; `mark` is `#` if all of it is an example.
fn whole(file: &mut String, section: &Section, path: &str, mark: &str) {
    heading(file, section.about, &format!("{mark}[{path}]"));
    for setting in section.settings() {
        line(file, setting, mark);
    }
    for inner in section
        .tables
        .iter()
        .filter(|inner| !inner.example.is_empty())
    {
        // Writing into a string cannot fail.
        _ = writeln!(file, "# {}", inner.about);
        let example = format!("{} = {}", inner.name, inner.example);
        for line in example.lines() {
            _ = writeln!(file, "#{line}");
        }
    }
    for inner in section
        .tables
        .iter()
        .filter(|inner| inner.example.is_empty())
    {
        if let Shape::One(section) = inner.shape {
            whole(file, section, &format!("{path}.{}", inner.name), mark);
        }
    }
}

/// A section that people name themselves, as an example.
fn named(file: &mut String, group: &Section, path: &str) {
    if let Some(named) = group.named {
        whole(file, named.section, path, "#");
    }
}

/// Of a host only what is usually set for one.
fn gate_host(file: &mut String, gate: &Section) {
    let Some(host) = gate.named.map(|named| named.section) else {
        return;
    };
    heading(file, host.about, "#[gate.\"*.example.com\"]");
    file.push_str("# Slower than the default.\n#max_rate = 50\n");
    if let Some(share) = host.setting("share") {
        _ = writeln!(file, "# {}\n#share = true", share.description());
    }
    if let Some(Shape::List(rule)) = host.table("rule").map(|inner| inner.shape) {
        let mut text = String::new();
        whole(&mut text, rule, "", "#");
        file.push_str(&text.replace("#[]", "#[[gate.\"*.example.com\".rule]]"));
    }
}

/// The presets; only the first has descriptions.
fn backoffs(file: &mut String, group: &Section) {
    let Some(section) = group.named.map(|named| named.section) else {
        return;
    };
    for &preset in Preset::ALL {
        if preset == Preset::default() {
            whole(file, section, "backoff.standard", "");
            continue;
        }
        heading(file, preset.about(), &format!("[backoff.{preset}]"));
        for (name, parts) in preset.settings().written() {
            if let Some(setting) = section.setting(name) {
                _ = writeln!(
                    file,
                    "{name} = {}",
                    in_toml(&setting.kind, &parts.join(","))
                );
            }
        }
    }
}

fn operations(file: &mut String, group: &Section) {
    if let Some(named) = group.named {
        whole(file, named.section, "operation.default", "");
    }
    file.push_str(
        "\n# A person waits for a login.\n#[operation.user_login]\n#backoff = \"aggressive\"\n\
         \n# Figures can be late.\n#[operation.analytics]\n#backoff = \"background\"\n",
    );
}

fn heading(file: &mut String, about: &str, header: &str) {
    _ = writeln!(file, "\n# {about}\n{header}");
}

fn line(file: &mut String, setting: &Setting, mark: &str) {
    let (text, mark) = match (setting.default, setting.example) {
        (Some(default), _) => (default, mark),
        (None, Some(example)) => (example, "#"),
        (None, None) => return,
    };
    _ = writeln!(file, "# {}", description(setting));
    _ = writeln!(
        file,
        "{mark}{} = {}",
        setting.name,
        in_toml(&setting.kind, text)
    );
}

/// What a setting is for, with its default under the strategy `aimd` if that is another.
pub(crate) fn description(setting: &Setting) -> String {
    let description = setting.description();
    match setting.aimd {
        None => description.to_owned(),
        Some(aimd) => {
            let description = description.trim_end_matches('.');
            format!("{description}; aimd: {}.", in_toml(&setting.kind, aimd))
        }
    }
}

/// A value as it is written in a file.
pub(crate) fn in_toml(kind: &Kind, text: &str) -> String {
    match kind {
        Kind::List { of, .. } => {
            let parts = kind.split(text).into_iter().map(|part| in_toml(of, part));
            format!("[{}]", parts.collect::<Vec<_>>().join(", "))
        }
        Kind::Switch | Kind::Whole { .. } | Kind::PowerOfTwo(_) | Kind::Number { .. } => {
            text.to_owned()
        }
        _ => format!("\"{text}\""),
    }
}

/// The default file with all examples in use, but for what is refused.
#[cfg(test)]
pub(crate) fn with_examples() -> String {
    let mut is_refused = false;
    let lines = default_file();
    let lines = lines.lines().map(|line| {
        if line.starts_with('[') {
            is_refused = line == "[storage]";
        }
        let example = line.strip_prefix('#').filter(|rest| {
            let is_comment = rest.is_empty() || rest.starts_with(' ') && !rest.starts_with("  ");
            !is_comment && !is_refused
        });
        example.unwrap_or(line).to_owned()
    });
    lines.map(|line| format!("{line}\n")).collect()
}

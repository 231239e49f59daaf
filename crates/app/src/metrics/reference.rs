//! The reference of all metrics, as a page of Markdown.
//!
//! Made from the same list as the output; a test compares it with `docs/reference/metrics.md`.

use std::fmt::Write;

use super::family::{self, BOUNDS, Family};
use super::outcome::RequestOutcome;

/// The page.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    for family in family::ALL {
        // Writing into a string cannot fail.
        _ = writeln!(page, "{}", row(family));
    }
    let outcomes: Vec<&str> = RequestOutcome::ALL.iter().map(|one| one.as_str()).collect();
    let outcomes = format!("`{}`", outcomes.join("`, `"));
    let bounds: Vec<String> = BOUNDS.iter().map(f64::to_string).collect();
    let behind = BEHIND.replace("OUTCOMES", &outcomes);
    page + &behind.replace("BOUNDS", &bounds.join(", "))
}

fn row(family: &Family) -> String {
    let labels: Vec<String> = family
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let labels = match labels.is_empty() {
        true => "–".to_owned(),
        false => labels.join(", "),
    };
    let (name, kind, help) = (family.name, family.kind.as_str(), family.help);
    let more = match family.more {
        "" => String::new(),
        more => format!(" {more}"),
    };
    format!("| `{name}` | {kind} | {labels} | {help}.{more} |")
}

const INTRODUCTION: &str = "\
# Metrics

`GET /metrics` of the admin address returns these in the text format of Prometheus, version 0.0.4 (`text/plain`), which every
scraper reads. Units are seconds and counts. A metric without samples, such as those of endpoints without a pool, is left out.

<!-- Generated from the list of metrics in the code by scripts/update-reference. -->

| metric | type | labels | meaning |
|---|---|---|---|
";

const BEHIND: &str = "
## Labels

Every label has a bound, so that requests cannot fill a database.

- `key` is the key of a gate. The 100 keys with the most attempts are shown by name, and so are the 100 gates
  that admitted most; `_other` is the rest. Which keys are shown is decided at each scrape. Attempts count
  where their key is shown at that time, by name or as `_other`, and stay there, so that no count ever decreases. Beyond
  10 000 keys, new ones count as `_other` until others are no longer used.
- `route` is the name of a pool; at most 1000, then `_other`.
- `outcome`, `verdict`, `reason`, `state` and `attempt` are closed lists of words. What never happened is left
  out, except `success`.

`outcome` is one of these:
OUTCOMES.

## Histograms

All have the same bounds, in seconds:
BOUNDS.

A single value adds at most a year to `_sum`. Quantiles come from the buckets:

```promql
histogram_quantile(0.99, sum by (le) (rate(tidegate_backoff_delay_seconds_bucket[5m])))
```

## Names of `sync.*`

Clients that counted retries under these names find them here:

| name | here |
|---|---|
| `sync.backoff.delay.avg` | `rate(tidegate_backoff_delay_seconds_sum[5m]) / rate(tidegate_backoff_delay_seconds_count[5m])` |
| `sync.backoff.delay.p50` | `histogram_quantile(0.5, rate(tidegate_backoff_delay_seconds_bucket[5m]))` |
| `sync.backoff.delay.p99` | `histogram_quantile(0.99, rate(tidegate_backoff_delay_seconds_bucket[5m]))` |
| `sync.retries.count` | `sum(tidegate_retries_total)` |
| `sync.retries.by_attempt` | `tidegate_retries_total`, by `attempt` |
| `sync.retries.exhausted` | `tidegate_retries_exhausted_total` |
| `sync.retries.success_on_attempt_1` to `sync.retries.success_on_attempt_5` | `tidegate_retry_success_total{attempt=\"1\"}` to `{attempt=\"5\"}` |
| `sync.retry_after.honored` | `tidegate_retry_after_honored_total` |
| `sync.retry_after.value.avg` | `rate(tidegate_retry_after_seconds_sum[5m]) / rate(tidegate_retry_after_seconds_count[5m])` |
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_page_is_up_to_date() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == reference(),
            "docs/reference/metrics.md is old; scripts/update-reference writes it anew"
        );
    }
}

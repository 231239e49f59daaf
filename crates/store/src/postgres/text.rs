//! Texts as columns. Postgres has no zero character in its texts, so it is written as two others.

use std::borrow::Cow;
use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::problem::PostgresError;

/// A text that is written to a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub(super) &'a str);

/// Stands before `0` for a zero character, and before `1` for itself. Unicode reserves it for such use.
const ESCAPE: char = '\u{10FFFE}';

impl ToSql for Text<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        escaped(self.0).to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <&str as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// The text in a column.
pub(super) fn text(row: &Row, index: usize) -> Result<String, PostgresError> {
    Ok(unescaped(row.try_get(index)?))
}

/// The text in a column that may have none.
pub(super) fn optional_text(row: &Row, index: usize) -> Result<Option<String>, PostgresError> {
    let text: Option<String> = row.try_get(index)?;
    Ok(text.map(unescaped))
}

/// As it is written.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let escaped = text.replace(ESCAPE, "\u{10FFFE}1");
    Cow::Owned(escaped.replace('\0', "\u{10FFFE}0"))
}

fn unescaped(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    let unescaped = text.replace("\u{10FFFE}0", "\0");
    unescaped.replace("\u{10FFFE}1", "\u{10FFFE}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_comes_back(text in "[\0\u{10FFFE}01a]{0,8}") {
            let written = escaped(&text).into_owned();
            prop_assert!(!written.contains('\0'));
            prop_assert_eq!(unescaped(written), text);
        }
    }
}

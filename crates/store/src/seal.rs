//! Encryption of stored values.
//!
//! A value is sealed with AES-256-GCM under a random nonce. Its place (table, row and column) is
//! authenticated with it, so that a value cannot be moved to another place. With every row stands
//! the id of its key; rows without one are as they were given, which is how they are written while no
//! key is configured.
//!
//! Several keys may be configured: the first seals, all open. A key is changed by writing the new one
//! before the old one, and the old one is removed when nothing is left that it sealed. A key is good
//! for 2^32 values, which is some hundred million operations.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

use crate::operations::SealError;

/// The keys of `storage.key`. `Debug` shows none of them.
///
/// ```
/// use store::Keys;
///
/// let keys: Keys = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f".parse()?;
/// assert!("too short".parse::<Keys>().is_err());
/// # Ok::<(), store::KeyError>(())
/// ```
#[derive(Clone, Default)]
pub struct Keys {
    keys: Arc<[Key]>,
}

struct Key {
    id: KeyId,
    key: LessSafeKey,
}

/// The first bytes of the key's SHA-256.
pub(crate) type KeyId = [u8; 8];

/// Where a value is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) table: &'static str,
    pub(crate) row: &'a str,
    pub(crate) column: &'static str,
}

/// Why a text is no key. The text is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "key {number} of {count} has {length} characters, expected 32 bytes in hex (64 digits) or base64 \
     (44 characters)\nhint: make one with `openssl rand -hex 32`"
)]
pub struct KeyError {
    /// Which of them, counted from 1.
    number: usize,
    count: usize,
    length: usize,
}

impl Keys {
    /// No key: values are stored as they are, and sealed ones cannot be read.
    pub fn none() -> Self {
        Self::default()
    }

    /// The id of the key that seals, if there is one.
    pub(crate) fn id(&self) -> Option<KeyId> {
        self.keys.first().map(|key| key.id)
    }

    /// The value to store: sealed with the first key, or as it is without one.
    pub(crate) fn seal(&self, place: Place<'_>, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let Some(key) = self.keys.first() else {
            return Ok(value.to_vec());
        };
        let mut nonce = [0; NONCE_LEN];
        let random = SystemRandom::new();
        random.fill(&mut nonce).map_err(|_| SealError::Random)?;
        let mut sealed = Vec::with_capacity(value.len() + NONCE_LEN + AES_256_GCM.tag_len());
        sealed.extend_from_slice(value);
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        key.key
            .seal_in_place_append_tag(nonce_of, Aad::from(place.bytes()), &mut sealed)
            .map_err(|_| SealError::TooLong)?;
        sealed.extend_from_slice(&nonce);
        Ok(sealed)
    }

    /// The value that was sealed with the key `id`.
    pub(crate) fn open(
        &self,
        id: &[u8],
        place: Place<'_>,
        mut sealed: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        let key = self.keys.iter().find(|key| key.id == id);
        let key = key.ok_or(SealError::OtherKey)?;
        let nonce = sealed.split_last_chunk::<NONCE_LEN>();
        let (text, &nonce) = nonce.ok_or(SealError::Tampered)?;
        let length = text.len();
        sealed.truncate(length);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = key
            .key
            .open_in_place(nonce, Aad::from(place.bytes()), &mut sealed)
            .map_err(|_| SealError::Tampered)?
            .len();
        sealed.truncate(opened);
        Ok(sealed)
    }
}

impl Place<'_> {
    /// Neither tables nor columns have a zero byte in their names.
    fn bytes(self) -> Vec<u8> {
        [self.table, self.column, self.row].join("\0").into_bytes()
    }
}

impl FromStr for Keys {
    type Err = KeyError;

    /// Keys, separated by whitespace or commas.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let is_separator = |letter: char| letter.is_whitespace() || letter == ',';
        let mut texts: Vec<&str> = text
            .split(is_separator)
            .filter(|text| !text.is_empty())
            .collect();
        if texts.is_empty() {
            texts.push("");
        }
        let count = texts.len();
        let keys = texts.iter().enumerate().map(|(index, text)| {
            let error = KeyError {
                number: index + 1,
                count,
                length: text.chars().count(),
            };
            Key::of(text).ok_or(error)
        });
        let keys: Result<Vec<Key>, KeyError> = keys.collect();
        Ok(Self { keys: keys?.into() })
    }
}

impl Key {
    fn of(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = from_hex(text).or_else(|| from_base64(text))?;
        let mut id = KeyId::default();
        let hash = digest(&SHA256, &bytes);
        id.copy_from_slice(hash.as_ref().get(..8)?);
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).ok()?);
        Some(Self { id, key })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("count", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Bytes as hex digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hex digits.
pub(crate) fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|letter| letter.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let bytes = digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).ok());
    bytes.collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    bytes_of_hex(text)?.try_into().ok()
}

/// Either alphabet, with or without padding.
fn from_base64(text: &str) -> Option<[u8; 32]> {
    let text = text.strip_suffix('=').unwrap_or(text);
    if text.len() != 43 {
        return None;
    }
    let (mut bits, mut value, mut bytes) = (0, 0_u32, Vec::with_capacity(33));
    for letter in text.bytes() {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        value = (value << 6 | u32::from(digit)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(value >> bits & 0xff).ok()?);
        }
    }
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    const PLACE: Place<'_> = Place {
        table: "operation_requests",
        row: "7",
        column: "body",
    };

    fn keys(text: &str) -> Keys {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_hex_or_base64() {
        let id = keys(HEX).id();
        assert!(id.is_some());
        for same in [
            BASE64,
            BASE64.trim_end_matches('='),
            &HEX.to_uppercase(),
            &format!(" {HEX}\n"),
        ] {
            assert_eq!(keys(same).id(), id, "{same}");
        }
        assert_ne!(keys(OTHER).id(), id);
        // By `printf '\000\001…\037' | sha256sum`.
        assert_eq!(to_hex(&id.unwrap()), "630dcd2966c43366");
    }

    #[test]
    fn refuses_other_texts_without_showing_them() {
        for text in [
            "",
            " , ",
            "hunter2",
            &HEX[1..],
            &format!("{HEX}0"),
            &format!("{HEX},hunter2"),
        ] {
            let error = text.parse::<Keys>().unwrap_err().to_string();
            assert!(error.contains("openssl rand -hex 32"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = format!("{HEX} hunter2").parse::<Keys>().unwrap_err();
        assert!(
            error.to_string().starts_with("key 2 of 2 has 7 characters"),
            "{error}"
        );
        assert!(!format!("{:?}", keys(HEX)).contains("0001"));
    }

    #[test]
    fn a_sealed_value_opens_in_its_place_only() {
        let keys = keys(HEX);
        let id = keys.id().unwrap();
        let sealed = keys.seal(PLACE, b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_ne!(sealed, keys.seal(PLACE, b"secret").unwrap());
        assert_eq!(
            keys.open(&id, PLACE, sealed.clone()),
            Ok(b"secret".to_vec())
        );
        for place in [
            Place {
                table: "operation_responses",
                ..PLACE
            },
            Place { row: "8", ..PLACE },
            Place {
                column: "base",
                ..PLACE
            },
        ] {
            assert_eq!(
                keys.open(&id, place, sealed.clone()),
                Err(SealError::Tampered)
            );
        }
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert_eq!(keys.open(&id, PLACE, changed), Err(SealError::Tampered));
        }
        assert_eq!(keys.open(&id, PLACE, Vec::new()), Err(SealError::Tampered));
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let old = keys(HEX);
        let sealed = old.seal(PLACE, b"").unwrap();
        let id = old.id().unwrap();
        let both = keys(&format!("{OTHER}, {BASE64}"));
        assert_eq!(both.id(), keys(OTHER).id());
        assert_eq!(both.open(&id, PLACE, sealed.clone()), Ok(Vec::new()));
        assert_eq!(
            keys(OTHER).open(&id, PLACE, sealed.clone()),
            Err(SealError::OtherKey)
        );
        assert_eq!(
            Keys::none().open(&id, PLACE, sealed),
            Err(SealError::OtherKey)
        );
    }

    #[test]
    fn without_a_key_values_stay_as_they_are() {
        assert_eq!(Keys::none().id(), None);
        assert_eq!(Keys::none().seal(PLACE, b"plain"), Ok(b"plain".to_vec()));
    }
}

//! A bounded cache for lookups by name.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// Maximum number of entries. A full map is cleared, which is rare.
const MOST: usize = 512;
/// Maximum length in bytes of a memoized name.
const LONGEST: usize = 256;

/// Caches the results of a lookup by name. The lookup must be deterministic: equal names give equal
/// values.
#[derive(Debug)]
pub struct Memoized<T>(RwLock<HashMap<Box<str>, T>>);

impl<T: Clone> Memoized<T> {
    /// Returns the cached value for a name; if there is none, computes the value with `find` and
    /// caches it.
    pub fn get_or_insert_with(&self, name: &str, find: impl FnOnce() -> T) -> T {
        let cached = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        cached.unwrap_or_else(|| {
            let found = find();
            if name.len() <= LONGEST {
                let mut cached = self.0.write().unwrap_or_else(PoisonError::into_inner);
                if cached.len() >= MOST {
                    cached.clear();
                }
                cached.insert(name.into(), found.clone());
            }
            found
        })
    }
}

impl<T> Default for Memoized<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

/// A clone starts empty: the owner of the clone may change the data that lookups read, which would
/// make cached results wrong.
impl<T> Clone for Memoized<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// All caches are equal, so that types with a cache can derive `PartialEq` and compare only their
/// other fields.
impl<T> PartialEq for Memoized<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_computed_once() {
        let recall = Memoized::default();
        assert_eq!(recall.get_or_insert_with("one", || 1), 1);
        assert_eq!(recall.get_or_insert_with("one", || 2), 1);
        assert_eq!(recall.get_or_insert_with("two", || 2), 2);
        assert_eq!(recall.clone().get_or_insert_with("one", || 3), 3);
    }

    #[test]
    fn cache_size_is_bounded() {
        let recall = Memoized::default();
        for number in 0..10 * MOST {
            recall.get_or_insert_with(&number.to_string(), || number);
            assert!(recall.0.read().is_ok_and(|cached| cached.len() <= MOST));
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(
            (recall.get_or_insert_with(&long, || 1), recall.get_or_insert_with(&long, || 2)),
            (1, 2)
        );
    }
}

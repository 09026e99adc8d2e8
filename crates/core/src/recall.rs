//! What was found for a name before, so that it need not be looked for again.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// How many names are remembered. One more, and all of them are let go: there are seldom that many.
const MOST: usize = 512;
/// How long a name may be that is remembered.
const LONGEST: usize = 256;

/// What was found for names. What is found for a name must always be the same.
#[derive(Debug)]
pub struct Recall<T>(RwLock<HashMap<Box<str>, T>>);

impl<T: Clone> Recall<T> {
    /// What is found for that name.
    pub fn or_find(&self, name: &str, find: impl FnOnce() -> T) -> T {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            if name.len() <= LONGEST {
                let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
                if known.len() >= MOST {
                    known.clear();
                }
                known.insert(name.into(), found.clone());
            }
            found
        })
    }
}

impl<T> Default for Recall<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

/// A copy finds for itself: it may be changed.
impl<T> Clone for Recall<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What was asked for says nothing of what there is.
impl<T> PartialEq for Recall<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_once() {
        let recall = Recall::default();
        assert_eq!(recall.or_find("one", || 1), 1);
        assert_eq!(recall.or_find("one", || 2), 1);
        assert_eq!(recall.or_find("two", || 2), 2);
        // A copy knows nothing yet.
        assert_eq!(recall.clone().or_find("one", || 3), 3);
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let recall = Recall::default();
        for number in 0..10 * MOST {
            recall.or_find(&number.to_string(), || number);
            assert!(recall.0.read().is_ok_and(|known| known.len() <= MOST));
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!((recall.or_find(&long, || 1), recall.or_find(&long, || 2)), (1, 2));
    }
}

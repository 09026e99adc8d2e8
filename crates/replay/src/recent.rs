//! A byte-limited cache that evicts the oldest entries first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The most recently inserted values, limited by their total size in bytes.
pub(crate) struct ByteLru<K, V> {
    known: HashMap<K, LruEntry<V>>,
    /// Keys in insertion order with their insertion numbers. Stale entries are possible.
    order: VecDeque<(K, u64)>,
    /// The next insertion number.
    count: u64,
    bytes: usize,
    most: usize,
}

struct LruEntry<V> {
    value: V,
    size: usize,
    number: u64,
}

impl<K: Clone + Eq + Hash, V> ByteLru<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), order: VecDeque::new(), count: 0, bytes: 0, most }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|known| &known.value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.known.get_mut(key).map(|known| &mut known.value)
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Removes a value and returns it.
    pub(crate) fn take(&mut self, key: &K) -> Option<V> {
        let known = self.known.remove(key)?;
        self.bytes = self.bytes.saturating_sub(known.size);
        Some(known.value)
    }

    /// Inserts a value of this size in bytes, replacing one with the same key. Evicts the oldest
    /// entries to make room. A value larger than the whole cache is not stored.
    pub(crate) fn put(&mut self, key: K, value: V, size: usize) {
        drop(self.take(&key));
        if size > self.most {
            return;
        }
        self.bytes += size;
        let number = self.count;
        self.count += 1;
        self.known.insert(key.clone(), LruEntry { value, size, number });
        self.order.push_back((key, number));
        while self.bytes > self.most
            && let Some((oldest, number)) = self.order.pop_front()
        {
            // The key may have been inserted again since.
            if self.known.get(&oldest).is_some_and(|known| known.number == number) {
                drop(self.take(&oldest));
            }
        }
        // Bounds the number of stale order entries.
        if self.order.len() > 2 * self.known.len() + 16 {
            let Self { known, order, .. } = self;
            order.retain(|(key, number)| {
                known.get(key).is_some_and(|known| known.number == *number)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ByteLru;

    #[test]
    fn oldest_entry_is_evicted_first_and_reinsertion_renews() {
        let mut recent = ByteLru::new(30);
        for key in ["a", "b", "c"] {
            recent.put(key, key, 10);
        }
        recent.put("a", "again", 10);
        recent.put("d", "d", 10);
        assert_eq!(recent.get(&"b"), None);
        assert_eq!(recent.get(&"a"), Some(&"again"));
        assert_eq!(recent.take(&"c"), Some("c"));
        recent.put("e", "e", 10);
        assert_eq!((recent.len(), recent.bytes), (3, 30));
        recent.put("large", "", 31);
        assert_eq!(recent.get(&"large"), None);
        assert_eq!((recent.len(), recent.bytes), (3, 30));
        recent.put("e", "too large now", 31);
        assert_eq!((recent.len(), recent.bytes), (2, 20));
    }

    #[test]
    fn removed_keys_do_not_accumulate() {
        let mut recent = ByteLru::new(30);
        for number in 0..1000 {
            recent.put(number, (), 1);
            recent.take(&number);
            assert!(recent.order.len() <= 18 && recent.bytes == 0);
        }
    }
}

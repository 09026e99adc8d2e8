//! A cache with a size limit in bytes, which evicts the oldest entries first.

use std::hash::Hash;

use hashlink::LinkedHashMap;

/// The most recently inserted values, limited by their total size in bytes.
///
/// Each turn of a conversation has a new key, and its entry replaces the previous turn's entry.
/// Reads do not delay eviction, because frequently read entries may belong to conversations that
/// have ended.
pub(crate) struct ByteLru<K, V> {
    /// Values with their sizes in bytes, oldest first.
    entries: LinkedHashMap<K, (V, usize)>,
    bytes: usize,
    most: usize,
}

impl<K: Eq + Hash, V> ByteLru<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { entries: LinkedHashMap::new(), bytes: 0, most }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn take(&mut self, key: &K) -> Option<V> {
        let (value, size) = self.entries.remove(key)?;
        self.bytes -= size;
        Some(value)
    }

    /// Inserts a value of `size` bytes, replacing any value with the same key, and evicts the
    /// oldest entries to make room. A value larger than the whole cache is not stored.
    pub(crate) fn put(&mut self, key: K, value: V, size: usize) {
        drop(self.replace(key, value, size));
    }

    /// Inserts a value like [`ByteLru::put`]. Returns the values that are no longer in the cache,
    /// so that the caller can drop them without holding a lock.
    pub(crate) fn replace(&mut self, key: K, value: V, size: usize) -> Vec<V> {
        let mut removed: Vec<V> = self.take(&key).into_iter().collect();
        if size > self.most {
            removed.push(value);
            return removed;
        }
        self.bytes += size;
        self.entries.insert(key, (value, size));
        while self.bytes > self.most
            && let Some((_, (oldest, size))) = self.entries.pop_front()
        {
            self.bytes -= size;
            removed.push(oldest);
        }
        removed
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
            assert_eq!((recent.len(), recent.bytes), (0, 0));
        }
    }
}

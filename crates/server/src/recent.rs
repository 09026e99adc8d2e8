//! What was put last, as far as it fits: the oldest is let go first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The values that were put last, which hold no more than so many bytes.
pub(crate) struct Recent<K, V> {
    known: HashMap<K, Known<V>>,
    /// The keys in the order in which they were put, each with its number. Some may be gone.
    order: VecDeque<(K, u64)>,
    /// How many were put.
    count: u64,
    bytes: usize,
    most: usize,
}

struct Known<V> {
    value: V,
    size: usize,
    number: u64,
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), order: VecDeque::new(), count: 0, bytes: 0, most }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key).map(|known| &known.value)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.known.get_mut(key).map(|known| &mut known.value)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Takes a value out.
    pub(crate) fn take(&mut self, key: &K) -> Option<V> {
        let known = self.known.remove(key)?;
        self.bytes = self.bytes.saturating_sub(known.size);
        Some(known.value)
    }

    /// Puts a value of so many bytes, in place of the one with that key. The oldest are let go for it. One that all of the
    /// room would not hold is not kept.
    pub(crate) fn put(&mut self, key: K, value: V, size: usize) {
        drop(self.take(&key));
        if size > self.most {
            return;
        }
        self.bytes += size;
        let number = self.count;
        self.count += 1;
        self.known.insert(key.clone(), Known { value, size, number });
        self.order.push_back((key, number));
        while self.bytes > self.most
            && let Some((oldest, number)) = self.order.pop_front()
        {
            // It may have been put again since.
            if self.known.get(&oldest).is_some_and(|known| known.number == number) {
                drop(self.take(&oldest));
            }
        }
        // What was taken out is not kept in order for ever.
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
    use super::Recent;

    #[test]
    fn the_oldest_goes_first_and_what_was_put_again_is_not_old() {
        let mut recent = Recent::new(30);
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
    fn what_was_taken_out_does_not_pile_up() {
        let mut recent = Recent::new(30);
        for number in 0..1000 {
            recent.put(number, (), 1);
            recent.take(&number);
            assert!(recent.order.len() <= 18 && recent.bytes == 0);
        }
    }
}

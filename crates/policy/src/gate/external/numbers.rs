//! Which slot each attempt of a gate was sent with.
//!
//! Attempts are numbered in the order in which they are sent, and slots are used in order. So it is
//! enough to remember where a run of consecutive slots began, and permits need not carry more.

/// The beginnings of the last runs of attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    epochs: Runs<u32, 4>,
    serials: Runs<u64, 16>,
}

impl Numbers {
    #[inline]
    pub(super) fn record(&mut self, number: u32, epoch: u32, serial: u64) {
        if self.epochs.last.1 != epoch {
            self.epochs.begin(number, epoch);
        }
        let (first, first_serial) = self.serials.last;
        let expected = match first_serial {
            0 => 0,
            _ => first_serial + u64::from(number.wrapping_sub(first)),
        };
        if serial != expected {
            self.serials.begin(number, serial);
        }
    }

    /// Zero if it is too long ago.
    pub(super) fn epoch_of(&self, number: u32) -> u32 {
        self.epochs.run_of(number).map_or(0, |(_, epoch)| epoch)
    }

    /// Zero if it had no slot, or if it is too long ago.
    pub(super) fn serial_of(&self, number: u32) -> u64 {
        match self.serials.run_of(number) {
            Some((first, serial)) if serial > 0 => serial + u64::from(number.wrapping_sub(first)),
            _ => 0,
        }
    }
}

/// The last `N` + 1 runs: the number of the first attempt, and its value.
#[derive(Clone, Debug)]
struct Runs<T, const N: usize> {
    last: (u32, T),
    before: [(u32, T); N],
    next: u8,
}

impl<T: Copy + Default, const N: usize> Runs<T, N> {
    #[cold]
    fn begin(&mut self, number: u32, value: T) {
        let next = usize::from(self.next);
        self.before[next] = self.last;
        self.next = u8::try_from((next + 1) % N).unwrap_or(0);
        self.last = (number, value);
    }

    fn run_of(&self, number: u32) -> Option<(u32, T)> {
        let includes = |run: &&(u32, T)| number.wrapping_sub(run.0) < u32::MAX / 2;
        let older = self.before.iter().filter(includes);
        let last = Some(&self.last).filter(includes);
        last.or_else(|| older.min_by_key(|run| number.wrapping_sub(run.0)))
            .copied()
    }
}

impl<T: Copy + Default, const N: usize> Default for Runs<T, N> {
    fn default() -> Self {
        Self {
            last: (0, T::default()),
            before: [(0, T::default()); N],
            next: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_slot_of_recent_attempts() {
        let mut numbers = Numbers::default();
        for (number, epoch, serial) in [(1, 1, 10), (2, 1, 11), (3, 1, 20), (4, 2, 21), (5, 2, 0)] {
            numbers.record(number, epoch, serial);
        }
        let slots = [1, 2, 3, 4, 5, 6].map(|it| (numbers.epoch_of(it), numbers.serial_of(it)));
        assert_eq!(slots, [(1, 10), (1, 11), (1, 20), (2, 21), (2, 0), (2, 0)]);
    }

    #[test]
    fn knows_the_epoch_longer_than_the_slot() {
        let mut numbers = Numbers::default();
        for number in 1..100_u32 {
            numbers.record(number, 7, u64::from(3 * number));
        }
        assert_eq!((numbers.epoch_of(1), numbers.serial_of(99)), (7, 297));
        assert_eq!(numbers.serial_of(84), 252);
    }
}

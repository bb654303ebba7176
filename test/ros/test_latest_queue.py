"""The slot of one between two threads."""

import threading

from lightglue_trt_ros.ros.matcher.latest_queue import NewestSlots


def test_the_newest_item_replaces_the_one_that_waits():
    slot = NewestSlots()
    assert [slot.offer(item) for item in (1, 2, 3)] == [False, True, True]
    assert slot.take() == (0, 3)
    assert not slot.offer(4)
    assert slot.take() == (0, 4)


def test_a_source_that_offers_at_once_again_waits_for_the_others():
    slots, served = NewestSlots(3), []
    for source in range(3):
        slots.offer('first', source)
    for _ in range(6):
        source, _ = slots.take()
        slots.offer('again', source)
        served.append(source)
    assert served == [0, 1, 2, 0, 1, 2]


def test_take_waits_and_close_lets_it_go():
    slot, taken = NewestSlots(), []

    def work() -> None:
        while (item := slot.take()) is not None:
            taken.append(item)

    thread = threading.Thread(target=work)
    thread.start()
    slot.offer('a')
    while not taken:
        pass
    slot.close()
    thread.join(5)
    assert not thread.is_alive()
    assert taken == [(0, 'a')]


def test_a_closed_slot_holds_nothing():
    slot = NewestSlots()
    slot.offer(1)
    slot.close()
    slot.close()
    assert not slot.offer(2)
    assert slot.take() is None

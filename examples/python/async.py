"""Asynchronous execution, a chapter for each idea.  Run it: every chapter checks what it says."""

import asyncio
import queue
import threading
import time

import numpy as np

import clika_runtime as crt


def chapter(title):
    print(f"\n== {title}")


chapter("A call returns at once, a read waits")
w = crt.full((1024, 1024), 1 / 1024)
w.wait()
start = time.perf_counter()
y = w
for _ in range(8):
    y = crt.matmul(y, w)  # eight products, none waited for
dispatched = time.perf_counter() - start
print(f"dispatched, idle: {y.stream.query_idle()}, ready: {y.is_ready()}, {y.dtype}, {y.shape}")  # metadata never waits
value = crt.amax(y).item()
print(f"read {value:.6f}; dispatch took {'less' if dispatched < time.perf_counter() - start else 'more'} time than the work")
assert abs(value - 1 / 1024) < 1e-7

chapter("Streams run beside each other, and wait for each other's results")
side = crt.Stream.create("cpu")
with crt.stream(side):
    left = crt.full((512, 512), 0.5)
right = crt.full((512, 512), 0.25)  # the thread's own lane
both = left + right  # rides the lane, and waits for the side stream by itself
print(f"left rides the side stream: {left.stream == side}, the sum {crt.amax(both).item()}")
crt.synchronize(side)

chapter("Safe reads: which memory may be touched when")
t = crt.tensor(np.arange(4, dtype=np.float32))  # a copy: the array is yours again
old = t * 10  # reads t ...
t.add_(1)  # ... so the write that comes after it waits, and `old` keeps its values
print(old.tolist(), t.tolist())
assert old.tolist() == [0, 10, 20, 30] and t.tolist() == [1, 2, 3, 4]
array = np.ones(4, np.float32)
borrowed = crt.from_numpy(array)  # no copy: the array's memory
borrowed.mul_(3)
crt.synchronize()  # a raw look at the array comes after this
print(array.tolist())
view = t.numpy()  # no copy either, settled by itself
view[0] = 100  # safe: numpy() also waited for those that read t
print(crt.sum(t).item())
snapshot = np.array(t.tolist())  # a copy that nothing later changes
t.zero_()
assert snapshot[0] == 100 and crt.sum(t).item() == 0

chapter("A decode loop with one step of lookahead")
embedding = crt.tensor(np.eye(16, dtype=np.float32)[np.roll(np.arange(16), 1)])
state = crt.tensor(np.eye(16, dtype=np.float32)[:1])
tokens = []
token = crt.argmax(state, dims=-1)
crt.async_eval(token)  # the first token is on its way
for _ in range(10):
    state = crt.matmul(state, embedding)
    following = crt.argmax(state, dims=-1)
    crt.async_eval(following)  # the next one is computed ...
    tokens.append(int(token.item()))  # ... while this one is read
    token = following
print(tokens)
assert tokens == [0, *range(15, 6, -1)]

chapter("Hand results to whoever consumes them: the consumer's read is the wait")
results: "queue.Queue[crt.Tensor]" = queue.Queue()
sums = []
consumer = threading.Thread(target=lambda: sums.extend(results.get().item() for _ in range(5)))
consumer.start()
for i in range(5):
    results.put(crt.sum(crt.matmul(w, w) + i))  # this thread never waits
consumer.join()
print([round(s / 1024**2, 3) for s in sums])

chapter("Step by step: synchronous()")
source = np.zeros((8, 8), np.float32)
stepped = crt.from_numpy(source)
with crt.synchronous():
    stepped.add_(3.0)
    print(f"written when the line is over: {source[0, 0]}")


@crt.synchronous()
def step(x):
    return crt.relu(x)


assert step(stepped).is_ready()


async def debugged():
    with crt.synchronous():
        await asyncio.sleep(0)  # the others of the thread do not see the scope meanwhile
        return crt.matmul(w, w).is_ready()


async def usual():
    return crt.matmul(w, w).is_ready()


async def side_by_side():
    return await asyncio.gather(debugged(), usual())


print("ready when the call returned:", *asyncio.run(side_by_side()))

chapter("First say all, then run it: tracing()")
with crt.tracing():
    a = crt.add(crt.mul(w, 2.0), 1.0)
    print(f"{a.status}, {a.shape}, no kernel ran")
    try:
        a.numpy()
    except crt.ClikaRTError as error:
        print(f"a read raises: {error}")
    with crt.eager():
        print(f"run at once: {crt.sum(w).item():.1f}")
crt.eval({"all": [a]})
print(f"{a.status}: {crt.amax(a).item():.4f}")

chapter("Shapes without values: meta_init()")
with crt.meta_init():
    big = crt.zeros((1 << 20, 1 << 20))  # 4 TiB, if it had storage
print((big @ big).shape, big.device)

chapter("Failures belong to results")
bad = crt.zeros(1 << 50)  # dispatched like any other
good = crt.ones(2) + 1
try:
    crt.exp(bad).numpy()
except MemoryError as error:
    print(str(error).split("; called at ")[0])
print(f"what does not depend on it is right: {good.tolist()}")

chapter("Memory: a limit that holds")
before = crt.memory.set_limit(crt.memory.current() + (64 << 20))
try:
    crt.ones(32 << 20).wait()  # 128 MiB
except MemoryError:
    print("more than the limit raises")
print(f"less works: {crt.sum(crt.ones(1 << 20)).item():.0f}")
crt.memory.set_limit(before)

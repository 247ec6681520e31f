# aio/driver.py is compiled without types: a coroutine runs faster in C.

"""Many TCP connections at the same time. A server answers each with the address of its client and the question, when the
client has ended its side. Arguments: "server" ADDRESS PORT COUNT, or "client" ADDRESS PORT COUNT FROM EXPECTED.

The server prints "accepted" once it has all connections. The client opens them, from the port FROM on, and prints "open"
once all are established. After SIGUSR1 it asks and ends all of them, and prints "done"; each must be answered as the
client EXPECTED. At most WINDOW connections wait for an answer, so that a burst fits into the queues of the devices."""

import errno
import resource
import select
import signal
import socket
import sys

WINDOW = 100

role, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def say(word):
    print(word, flush=True)


def serve():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(count)
    say("listens")
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    clients = {}
    accepted = ended = 0
    while ended < count:
        for number, _ in poll.poll():
            if number == listener.fileno():
                stream, (source, _) = listener.accept()
                clients[stream.fileno()] = [stream, source.encode()]
                poll.register(stream, select.EPOLLIN)
                accepted += 1
                if accepted == count:
                    say("accepted")
                continue
            stream, answer = clients[number]
            data = stream.recv(100)
            clients[number][1] = answer + data
            if not data:
                stream.sendall(answer)
                poll.unregister(number)
                stream.close()
                del clients[number]
                ended += 1


def ask(first, expected):
    poll = select.epoll()
    streams = {}
    waiting = 0

    def events():
        """Numbers of the streams that are ready, each of which had an event in `poll`."""
        for number, _ in poll.poll():
            yield number, *streams[number][:2]

    def opened():
        done = 0
        for number, stream, n in events():
            error = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                sys.exit("connection %d: %s" % (n, errno.errorcode[error]))
            poll.modify(number, 0)
            done += 1
        return done

    def answered():
        done = 0
        for number, stream, n in events():
            data = stream.recv(100)
            streams[number][2] += data
            if not data:
                answer = streams.pop(number)[2]
                if answer != b"%s %d" % (expected.encode(), n):
                    sys.exit("answer %d: %r" % (n, answer))
                stream.close()
                done += 1
        return done

    for n in range(count):
        stream = socket.socket()
        stream.setblocking(False)
        stream.bind(("0.0.0.0", first + n))
        if stream.connect_ex((address, port)) not in (0, errno.EINPROGRESS):
            sys.exit("cannot connect")
        streams[stream.fileno()] = [stream, n, b""]
        poll.register(stream, select.EPOLLOUT)
        waiting += 1
        while waiting >= WINDOW:
            waiting -= opened()
    while waiting:
        waiting -= opened()
    say("open")
    signal.sigwait([signal.SIGUSR1])
    for stream, n, _ in list(streams.values()):
        stream.sendall(b" %d" % n)
        stream.shutdown(socket.SHUT_WR)
        poll.modify(stream, select.EPOLLIN)
        waiting += 1
        while waiting >= WINDOW:
            waiting -= answered()
    while waiting:
        waiting -= answered()
    say("done")


signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
limit = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], count + 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
if role == "server":
    serve()
else:
    ask(int(sys.argv[5]), sys.argv[6])

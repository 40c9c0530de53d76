"""Many TCP connections at the same time. A server answers each with the address of its client and the question, when the
client has ended its side. Arguments: "server" ADDRESS PORT COUNT, or "client" ADDRESS PORT COUNT FROM EXPECTED.

The client opens all connections, from the port FROM on, and prints "open" once all are established. After SIGUSR1 it asks
and ends all of them, and prints "done"; each must be answered as the client EXPECTED."""

import errno
import resource
import select
import signal
import socket
import sys

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
    ended = 0
    while ended < count:
        for number, _ in poll.poll():
            if number == listener.fileno():
                stream, (source, _) = listener.accept()
                clients[stream.fileno()] = [stream, source.encode()]
                poll.register(stream, select.EPOLLIN)
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
    for n in range(count):
        stream = socket.socket()
        stream.setblocking(False)
        stream.bind(("0.0.0.0", first + n))
        if stream.connect_ex((address, port)) not in (0, errno.EINPROGRESS):
            sys.exit("cannot connect")
        poll.register(stream, select.EPOLLOUT)
        streams[stream.fileno()] = [stream, n, b""]
    waiting = count
    while waiting:
        for number, _ in poll.poll():
            stream = streams[number][0]
            error = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                sys.exit("connection %d: %s" % (streams[number][1], errno.errorcode[error]))
            poll.modify(number, 0)
            waiting -= 1
    say("open")
    signal.sigwait([signal.SIGUSR1])
    for stream, n, _ in streams.values():
        stream.sendall(b" %d" % n)
        stream.shutdown(socket.SHUT_WR)
        poll.modify(stream, select.EPOLLIN)
    while streams:
        for number, _ in poll.poll():
            stream, n, answer = streams[number]
            data = stream.recv(100)
            streams[number][2] = answer + data
            if not data:
                if answer != b"%s %d" % (expected.encode(), n):
                    sys.exit("answer %d: %r" % (n, answer))
                stream.close()
                del streams[number]
    say("done")


signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
if role == "server":
    serve()
else:
    ask(int(sys.argv[5]), sys.argv[6])

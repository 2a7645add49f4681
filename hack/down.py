"""`make down`: end a cluster of `make up`, also one that crashed, and delete its files.

usage: python -m hack.down [--name NAME]
"""

import argparse

from hack.cluster import Cluster


def main() -> None:
    parser = argparse.ArgumentParser(prog="make down", description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="", help="the name given to `make up`")
    cluster = Cluster(name=parser.parse_args().name)
    if not cluster.folder.exists():
        print(f"{cluster.folder.name} is not running.")
        return
    ended = cluster.remove()
    print(f"Down: {ended} processes ended, {cluster.folder.name} deleted.")


if __name__ == "__main__":
    main()

#!/bin/sh
# The work of the tutorial (docs/tutorial.md). Under `poise worker` it counts for its partition, twice a second, and
# goes on where the one before it stopped. Run by hand it shows who has counted within the last two seconds.
mkdir -p counts
if [ -z "$POISE_ITEM" ]; then
    find counts -type f -newermt '-2 seconds' -exec tail -q -n 1 {} + |
        awk '{ held[$2]++ } END { for (worker in held) print worker, held[worker]; print "all", NR }' | sort
    exit
fi
file=counts/$POISE_ITEM
count=$(tail -n 1 "$file" 2>/dev/null | cut -d ' ' -f 1)
while :; do
    count=$((count + 1))
    echo "$count $POISE_MEMBER epoch $POISE_EPOCH" >>"$file"
    sleep 0.5
done
